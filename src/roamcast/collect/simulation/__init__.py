"""Simulation of sensor fields."""
