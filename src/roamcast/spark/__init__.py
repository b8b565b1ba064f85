"""Matching on Spark: files and data frames."""
