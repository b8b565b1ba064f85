"""`roamcast bench deliver`."""
