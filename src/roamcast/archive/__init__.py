"""The archive: what journals had, kept as a partitioned table. Written by the pipeline, read by backtests."""
