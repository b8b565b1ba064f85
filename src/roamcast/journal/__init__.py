"""What nodes write and the pipeline reads: one ordered log per node."""
