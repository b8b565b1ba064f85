"""Which workers an event is sent to."""
