"""What a backtest is asked: a subscription, who would have had it, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from roamcast.errors import InputError
from roamcast.model import Position, iso

__all__ = ["NOBODY", "SUBSCRIPTION", "Request", "Subscriber"]

SUBSCRIPTION: Final = "backtest"
"""The default id of the subscription."""

NOBODY: Final = "the subscriber"
"""The id of a subscriber that was never registered. No entity can have it."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Who would have subscribed: a registered subscriber, by its id, or somebody at the positions of a `track`.

    A track has times of acceptance, in order; the position that is in force at the beginning may be earlier. Without
    id and track, nobody: that is enough for a subscription that does not depend on its subscriber. `node` is the node
    of the subscriber, if the archive has several.
    """

    id: str | None = None
    track: Sequence[Position] = ()
    node: str | None = None

    @classmethod
    def at(cls, x: float, y: float, node: str | None = None) -> Subscriber:
        """Somebody who stands still."""
        return cls(None, (Position(NOBODY, x, y, 0),), node)


@dataclass(frozen=True, slots=True)
class Request:
    """A subscription that is accepted before the first record written at `begin` or later, and removed before the first
    one written at `end` or later. Times are those of the journal, in microseconds since 1970.

    `accepted` is the time of the node's clock when it accepts the subscription; by default `begin`.
    """

    lacl: str
    begin: int
    end: int
    subscriber: Subscriber = Subscriber()
    id: str = SUBSCRIPTION
    accepted: int | None = None

    def __post_init__(self) -> None:
        if self.begin >= self.end:
            raise InputError(
                f"it begins at {iso(self.begin)} and ends at {iso(self.end)}",
                where="from",
                hint="the beginning must be before the end",
            )
        if self.subscriber.id is not None and self.subscriber.track:
            raise InputError(
                "a registered subscriber has a track of its own", where="subscriber", hint="give an id or a position"
            )

    @property
    def at(self) -> int:
        """When the subscription is accepted, by the clock of its node."""
        return self.begin if self.accepted is None else self.accepted
