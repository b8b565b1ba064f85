"""`roamcast bench intake`."""
