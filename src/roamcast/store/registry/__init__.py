"""The registry of a node: port and SQL adapter."""
