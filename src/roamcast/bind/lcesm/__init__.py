"""LCESM: the binder with its requirement manager, binding manager, agents and location listener."""
