"""Routing: which workers an event is sent to."""
