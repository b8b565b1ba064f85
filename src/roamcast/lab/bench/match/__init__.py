"""`roamcast bench match` and `roamcast bench equality`."""
