"""The databases of a node: its registry and its post office."""
