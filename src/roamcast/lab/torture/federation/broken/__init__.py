"""Parts of a host with one deliberate bug each. The docstring of a class or function says what is wrong with it."""
