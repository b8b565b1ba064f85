"""Simulation of sensor fields and the protocols CET, direct gathering and Epidemic."""
