"""Rows of data frames: their columns are chosen, read and checked."""
