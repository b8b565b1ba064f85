"""Collect: events out of sensor fields that are not connected, by CET, by direct gathering, or by contagion."""
