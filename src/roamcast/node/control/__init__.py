"""The control writer and the binder."""
