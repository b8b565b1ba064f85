"""The field simulator, slow and obvious: what the compiled one must equal."""

from roamcast.collect.simulation.reference.simulate import simulate_slowly

__all__ = ["simulate_slowly"]
