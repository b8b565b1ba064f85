"""Reference implementation of the simulation: slow and simple. The compiled one must equal it bit for bit."""

from field_reference.simulate import simulate_reference

__all__ = ["simulate_reference"]
