"""What the cores say to each other, and what they ask of their drivers.

*Notes* spread to every member of a community; each has a version, and a newer one replaces an older one with the same
key. *Messages* go to one node in contact. *Transfers* carry an event. Times are times of the sender's clock: a link
converts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from roamcast.collect.protocol.communities import Cell
from roamcast.collect.protocol.events import Copy, EventId, FieldEvent, NodeId

__all__ = [
    "Answer",
    "Bid",
    "Call",
    "CellEntry",
    "Collected",
    "Dropped",
    "Effect",
    "Grant",
    "Handover",
    "Have",
    "Hello",
    "KeeperQuery",
    "Kept",
    "Message",
    "NewHead",
    "Note",
    "Offer",
    "Outgoing",
    "Path",
    "PutBack",
    "Relay",
    "Spread",
    "Status",
    "Stop",
    "Tell",
    "Transfer",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hello:
    """A sensor answers a mule that has come into reach."""

    community: NodeId
    is_isolated: bool


@dataclass(frozen=True, slots=True)
class CellEntry:
    """A mule has entered a cell, and may be sent again what it was sent in the last one (direct gathering)."""


@dataclass(frozen=True, slots=True)
class Poll:
    """A mule asks a sensor for its next event."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """A sensor has no event for a mule that has polled it."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A mule offers events for put-back, youngest first."""

    number: int
    events: tuple[EventId, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The community takes one of the offered events, to be sent along a route, or none."""

    number: int
    event: EventId | None
    route: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """A mule is in reach of the nodes in a cell, or of one node, from a time until another."""

    place: Cell | NodeId
    begin: int
    until: int


@dataclass(frozen=True, slots=True)
class Path:
    """Where a mule will be on the rest of its leg. As a note, it is known to the whole community."""

    mule: NodeId
    version: int
    stops: tuple[Stop, ...]


@dataclass(frozen=True, slots=True)
class Have:
    """Events that a mule has received. Each is added to what is known."""

    mule: NodeId
    version: int
    events: tuple[EventId, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The mules in reach of a sensor, and whether its queue is full."""

    node: NodeId
    version: int
    mules: tuple[NodeId, ...]
    is_full: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A member calls for the election of a head."""

    node: NodeId
    term: int


@dataclass(frozen=True, slots=True)
class Bid:
    """What a member has left, in joules, in an election."""

    node: NodeId
    term: int
    joules: float


@dataclass(frozen=True, slots=True)
class NewHead:
    """The head of a term. It is final if it has too little energy to be replaced."""

    node: NodeId
    term: int
    is_final: bool


@dataclass(frozen=True, slots=True)
class KeeperQuery:
    """A sensor asks the head who shall keep one of the events that a mule offers."""

    node: NodeId
    mule: NodeId
    number: int
    events: tuple[EventId, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """The head's reply: the event, and the route from the sensor that asked to its keeper; or nothing."""

    node: NodeId
    mule: NodeId
    number: int
    event: EventId | None
    route: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """An event was put back to this community, which refuses it from now on."""

    event: EventId
    expires: int


Message: TypeAlias = Hello | CellEntry | Poll | Nothing | Offer | Answer | Path | Have
Note: TypeAlias = Path | Have | Status | Call | Bid | NewHead | KeeperQuery | Grant | Kept


@dataclass(frozen=True, slots=True)
class Handover:
    """An event for a mule, or from a mule for a base. `hops` counts its transfers, this one included."""

    event: FieldEvent
    hops: int


@dataclass(frozen=True, slots=True)
class Relay:
    """An event on its way to a mule, for the layer above."""

    event: FieldEvent
    hops: int
    mule: NodeId
    successes: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """An event on its way to its keeper, the end of the route. `giver` is the mule that put it back."""

    event: FieldEvent
    hops: int
    giver: NodeId
    route: tuple[NodeId, ...]


Transfer: TypeAlias = Handover | Relay | PutBack


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A transfer that a core wants its link to carry, and the copy that it is made from."""

    to: NodeId
    transfer: Transfer
    copy: Copy | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to a node in contact."""

    to: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread a note to all other members of the community."""

    note: Note


@dataclass(frozen=True, slots=True)
class Dropped:
    """A copy was dropped. `rule` is a key of the core's `counts`."""

    event: FieldEvent
    rule: str


@dataclass(frozen=True, slots=True)
class Collected:
    """A mule has received an event that it wants for the first time."""

    event: FieldEvent
    hops: int


Effect: TypeAlias = Tell | Spread | Dropped | Collected
