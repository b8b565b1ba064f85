"""Compiled kernels of matching: text hashing, building segments, searching, routing and clustering."""
