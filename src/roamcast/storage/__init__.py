"""Storage: where files are kept that several hosts share."""
