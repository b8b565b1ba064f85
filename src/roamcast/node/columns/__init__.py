"""Events and positions of a request as columns, and the tables in which they can be sent."""
