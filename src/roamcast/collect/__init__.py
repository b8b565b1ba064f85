"""Stage 1: collect events from sensor fields that are not connected to a base."""
