"""Compiled parts of the field simulator."""
