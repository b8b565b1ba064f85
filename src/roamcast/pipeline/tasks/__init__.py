"""What executors run."""
