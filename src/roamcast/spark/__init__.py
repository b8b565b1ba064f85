"""Matching on Spark: files of events and subscriptions as data frames. Not stable yet: it may change at any time."""
