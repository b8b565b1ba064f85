"""Fault simulation: the real protocol over failing networks, hosts and disks, with strict checks."""
