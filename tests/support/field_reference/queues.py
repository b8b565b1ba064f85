"""Reference implementation of a sensor's queue (section 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = ["Copy", "CopyQueue"]


@dataclass(eq=False)
class Copy:
    """A copy of an event. `mule` is the mule that it is relayed to; None for the copy of an owner or keeper.

    Younger events have higher numbers. `arrived` is the tick of arrival; the copy is sent on in a later tick.
    """

    event: int
    arrived: int
    mule: int | None = None
    successes: int = 0
    hops: int = 0
    sent_to: set[int] = field(default_factory=set)


@dataclass
class CopyQueue:
    """At most K copies. Priority: fewest successes (with `by_successes`), then youngest."""

    K: float
    by_successes: bool
    copies: list[Copy] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.copies) >= self.K

    def first(self, is_sendable: Callable[[Copy], bool]) -> Copy | None:
        """The sendable copy with the highest priority; of equal ones, the last to arrive."""
        ready = [copy for copy in self.copies if is_sendable(copy)]
        return min(reversed(ready), key=self._order) if ready else None

    def remove(self, should_remove: Callable[[Copy], bool]) -> list[Copy]:
        """Remove copies and return them."""
        removed = [copy for copy in self.copies if should_remove(copy)]
        self.copies = [copy for copy in self.copies if copy not in removed]
        return removed

    def own(self) -> Iterable[Copy]:
        return (copy for copy in self.copies if copy.mule is None)

    def _order(self, copy: Copy) -> tuple[int, int, int]:
        return (copy.successes if self.by_successes else 0, -copy.event, -1 if copy.mule is None else copy.mule)
