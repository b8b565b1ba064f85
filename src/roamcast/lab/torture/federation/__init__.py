"""Simulated hosts with a data folder each: wants, forwarding, held bindings and visitors under faults."""
