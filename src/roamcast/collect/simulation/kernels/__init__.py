"""Compiled kernels of the field simulation."""
