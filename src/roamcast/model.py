"""Values that all stages share.

Times are whole microseconds since 1970-01-01 UTC. Terms are compared exactly, character by character.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

__all__ = [
    "BEFORE_ALL", "EARLIEST", "EPOCH", "LATEST", "NO_END", "Box", "Letter", "Lifecycle", "Position", "Subscription",
    "global_name", "iso", "split_name",
]  # fmt: skip

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The times that Python can represent as a date: the years 1 to 9999.
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999

# Less and greater than all times and offsets, as int64.
BEFORE_ALL, NO_END = -(2**63), 2**63 - 1


def iso(micros: int) -> str:
    """Format a time as ISO 8601 in UTC."""
    return (EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


def global_name(id: str, node: str) -> str:
    """Return the name of a source of another node: `source@home`. Ids have no `@`."""
    return f"{id}@{node}"


def split_name(name: str) -> tuple[str, str | None]:
    """Split the name of a source into its id and its home node; the node is None for a local source."""
    id, _, node = name.partition("@")
    return id, node or None


class Box(NamedTuple):
    """A rectangle; its borders are inside. In geographic space a box with min_x > max_x crosses the antimeridian."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float


@dataclass(frozen=True, slots=True)
class Position:
    """The position of an entity (source or subscriber) at a time."""

    entity: str
    x: float
    y: float
    time: int

    def supersedes(self, known: Position | None) -> bool:
        """Whether this position replaces the known one: the known one is not later."""
        return known is None or self.time >= known.time


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The state of a subscription that is not always active: one of plan bind, or one with a life-control.

    `state` is `start`, `active`, `inactive` or `stop`, since the time `since`. `why` says why it receives nothing; None
    while the subscription is active. `was_active`: it has been active at least once.
    """

    state: str
    why: str | None
    since: int
    was_active: bool = False


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of a subscriber. `text` is its query in canonical form.

    `body` is the JSON body of the control record that the pipeline gets while the subscription runs; None if the
    pipeline gets bindings instead. `places` are the places that the query names. Without a `lifecycle` the subscription
    runs from `accepted` until it is removed. `has_moving_region`: its region is centred on the subscriber, so that the
    pipeline needs the subscriber's position. `source_condition` is on attributes of sources, in normal form, as
    JSON; "" if there is none. `cell` contains its region, see `bind.discovery.cells`; "" is everywhere.
    """

    id: str
    subscriber: str
    text: str
    body: str | None = None
    accepted: int = 0
    places: tuple[str, ...] = ()
    lifecycle: Lifecycle | None = None
    has_moving_region: bool = False
    source_condition: str = ""
    cell: str = ""

    @property
    def plan(self) -> Literal["bind", "match"]:
        return "bind" if self.body is None else "match"

    @property
    def has_lifecycle(self) -> bool:
        return self.lifecycle is not None

    @property
    def in_pipeline(self) -> bool:
        """Whether the pipeline has the subscription now."""
        return self.plan == "match" and (self.lifecycle is None or self.lifecycle.state == "active")


class Letter(NamedTuple):
    """An event addressed to one subscriber, or a message from one subscriber to another.

    Each sender numbers its letters to each receiver 1, 2, 3, …; (receiver, sender, number) identifies a letter. `body`
    is the JSON text for the receiver; the post office does not read it. `office` is the office where the letter was
    posted, `sent` the time. From `expires` on the letter is not delivered if it has not been delivered before.
    """

    receiver: str
    sender: str
    number: int
    body: str
    title: str = ""
    office: str = ""
    sent: int = 0
    expires: int | None = None
