"""Benchmarks, experiments, fault simulation and scenarios. Nothing in the product imports it."""
