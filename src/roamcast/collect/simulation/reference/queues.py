"""A sensor's queue: who is first, and who must go (section 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = ["Copy", "Queue"]


@dataclass(eq=False)
class Copy:
    """A copy of an event. `mule` is for whom it is being handed up; None: it is the sensor's own, or in its keeping.

    Younger events have higher numbers. `arrived` is the tick in which it came: it goes on in a later one.
    """

    event: int
    arrived: int
    mule: int | None = None
    successes: int = 0
    hops: int = 0
    sent_to: set[int] = field(default_factory=set)


@dataclass
class Queue:
    """At most K copies. Order: fewest successes first, then youngest first; or simply youngest first."""

    K: float
    by_successes: bool
    copies: list[Copy] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.copies) >= self.K

    def first(self, may_go: Callable[[Copy], bool]) -> Copy | None:
        """The first in order of those that may go; of equals the one that came last."""
        ready = [copy for copy in self.copies if may_go(copy)]
        return min(reversed(ready), key=self._order) if ready else None

    def take_out(self, goes: Callable[[Copy], bool]) -> list[Copy]:
        """Remove those that go, and tell which."""
        gone = [copy for copy in self.copies if goes(copy)]
        self.copies = [copy for copy in self.copies if copy not in gone]
        return gone

    def own(self) -> Iterable[Copy]:
        return (copy for copy in self.copies if copy.mule is None)

    def _order(self, copy: Copy) -> tuple[int, int, int]:
        return (copy.successes if self.by_successes else 0, -copy.event, -1 if copy.mule is None else copy.mule)
