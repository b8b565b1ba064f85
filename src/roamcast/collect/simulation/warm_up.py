"""A small world that uses every kernel once, so that all are compiled, or taken from numba's cache."""

from __future__ import annotations

from roamcast.collect.simulation.field import Field, draw
from roamcast.collect.simulation.protocols import CET, DG, Epidemic
from roamcast.collect.simulation.simulate import simulate

__all__ = ["rehearse"]


def rehearse() -> None:
    """One short run of each protocol."""
    world = draw(Field(side=60.0, cells=6, sensors=8, mules=2, gap_s=10.0, duration_s=60.0, silence_s=5.0), 1)
    for protocol in (CET(), DG(), Epidemic()):
        simulate(world, protocol, log=True)
