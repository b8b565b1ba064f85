"""Examples of the API for its documentation: one story that the tests play at a real node."""
