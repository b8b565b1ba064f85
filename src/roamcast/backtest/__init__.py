"""Backtests: which letters a subscription would have made of the events in an archive."""
