"""The vocabulary: plain frozen values shared by all stages.

Times are whole microseconds since 1970-01-01 UTC. Terms are compared exactly, character by character.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

__all__ = [
    "EPOCH", "Box", "Event", "Letter", "Place", "Position", "Standing", "Subscription", "global_name",
    "iso", "local_name",
]  # fmt: skip

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(micros: int) -> str:
    """A time as ISO 8601 in UTC."""
    return (EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


def global_name(id: str, node: str) -> str:
    """How a source of another node is called; ids have no `@`."""
    return f"{id}@{node}"


def local_name(name: str) -> tuple[str, str | None]:
    """The id of a source at its node, and the node if that is another."""
    id, _, node = name.partition("@")
    return id, node or None


class Box(NamedTuple):
    """A closed rectangle: borders belong to it. In geographic space min_x > max_x crosses the antimeridian."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float


class Place(NamedTuple):
    """Where something stands in a journal: the node that acknowledged it and its dense position there."""

    node: str
    position: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a point. (source, seq) is its identity; `id` is its name for people.

    `seq` is dense per source, beginning with 1; gaps never hold anything back.
    """

    id: str
    source: str
    seq: int
    time: int
    x: float
    y: float
    terms: tuple[str, ...] = ()
    readings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Position:
    """Where an entity (source or subscriber) was at a time."""

    entity: str
    x: float
    y: float
    time: int

    def counts_after(self, known: Position | None) -> bool:
        """Whether it says something new of its entity: unless a later position is known."""
        return known is None or self.time >= known.time


@dataclass(frozen=True, slots=True)
class Standing:
    """How a subscription stands that does not simply run: one with bound sources, or with a life-control.

    `state` is `start`, `active`, `inactive` or `stop`, since when, and `why` it hears nothing, None while it is active.
    `joined`: it has been active at some time.
    """

    state: str
    why: str | None
    since: int
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a subscriber wants, in the canonical form of LACL.

    `body` is what the pipeline is told while it runs, as JSON; None if the pipeline is told of its bindings instead.
    `places` are the places it names. Without a `standing` it runs from `accepted` until it is removed. `is_around`: it
    takes events around its subscriber, and the pipeline is told where that is. `source` is its condition on the
    attributes of sources alone, in normal form; empty if it has none.
    """

    id: str
    subscriber: str
    text: str
    body: str | None = None
    accepted: int = 0
    places: tuple[str, ...] = ()
    standing: Standing | None = None
    is_around: bool = False
    source: str = ""

    @property
    def is_told(self) -> bool:
        """Whether the pipeline has it now."""
        return self.body is not None and (self.standing is None or self.standing.state == "active")


@dataclass(frozen=True, slots=True)
class Letter:
    """An event addressed to one subscriber, or a message from one subscriber to another.

    Each sender numbers its letters to each receiver densely, beginning with 1: (receiver, sender, number) is a letter's
    identity. `body` is the JSON text that the receiver gets; the post office never looks inside. `office` is where it
    was posted, `sent` when; from `expires` on it is not handed out for the first time.
    """

    receiver: str
    sender: str
    number: int
    body: str
    title: str = ""
    office: str = ""
    sent: int = 0
    expires: int | None = None
