"""Fault simulation: the real protocol over a world that fails in every way, and checkers without tolerance."""
