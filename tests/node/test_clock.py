"""The clock of a node."""

from __future__ import annotations

from roamcast.node.clock import Clock


def test_the_clock_increases_strictly() -> None:
    """Also if the system clock does not."""
    wall = iter([5, 5, 3, 100])
    clock = Clock(after=10, wall=lambda: next(wall))
    assert [clock.now() for _ in range(4)] == [11, 12, 13, 100]
