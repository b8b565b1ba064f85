"""Measurements: one module or package per stage, each against a peer or a limit in the same run."""
