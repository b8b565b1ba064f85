"""`roamcast bench pipeline` with `--saturate`, `--growth` or `--one-event`."""
