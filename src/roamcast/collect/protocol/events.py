"""Events of a field, and the copies of them that nodes keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

__all__ = ["Copy", "CopyQueue", "EventId", "FieldEvent", "NodeId"]

NodeId: TypeAlias = int
"""A field node or a mule: a number from 0 to 2**32 - 2, unique in the field."""


class EventId(NamedTuple):
    """Identifies an event: its source numbers its events in each incarnation."""

    source: NodeId
    incarnation: int
    number: int


@dataclass(frozen=True, slots=True)
class FieldEvent:
    """An event. Its times are times of the holder's clock: a link converts them when the event changes hands."""

    id: EventId
    origin: NodeId
    """The community in which it was created."""
    origin_size: int
    """The size of that community, in cells."""
    born: int
    expires: int
    """When its survival time exceeds beta."""
    content: bytes = b""

    @property
    def youth(self) -> tuple[int, int, NodeId]:
        """Younger events have higher values."""
        return self.born, self.id.number, self.id.source


@dataclass(eq=False, slots=True)
class Copy:
    """A copy in a queue. `mule` is the mule that it is relayed to; None for the copy of an owner.

    `ready` is when it may first be sent on.
    """

    event: FieldEvent
    ready: int
    mule: NodeId | None = None
    successes: int = 0
    hops: int = 0
    sent_to: set[NodeId] = field(default_factory=set)
    is_under_way: bool = False
    """Whether it is being sent at the moment."""


@dataclass
class CopyQueue:
    """At most K copies (section 3.3). Priority: fewest successes (with `by_successes`), then youngest."""

    K: float
    by_successes: bool
    copies: list[Copy] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.copies) >= self.K

    def first(self, is_sendable: Callable[[Copy], bool]) -> Copy | None:
        """The sendable copy with the highest priority; of equal ones, the last to arrive."""
        ready = [copy for copy in self.copies if is_sendable(copy)]
        return max(enumerate(ready), key=self._priority)[1] if ready else None

    def remove(self, should_remove: Callable[[Copy], bool]) -> list[Copy]:
        """Remove copies and return them."""
        removed = [copy for copy in self.copies if should_remove(copy)]
        if removed:
            self.copies = [copy for copy in self.copies if copy not in removed]
        return removed

    def own(self) -> Iterable[Copy]:
        return (copy for copy in self.copies if copy.mule is None)

    def _priority(self, numbered: tuple[int, Copy]) -> tuple[int, tuple[int, int, NodeId], int, int]:
        order, copy = numbered
        successes = copy.successes if self.by_successes else 0
        return -successes, copy.event.youth, 0 if copy.mule is None else -1 - copy.mule, order
