"""Measurements: one module per stage, each against a peer or a limit in the same run."""
