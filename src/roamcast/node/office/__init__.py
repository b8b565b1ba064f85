"""The node's post office."""
