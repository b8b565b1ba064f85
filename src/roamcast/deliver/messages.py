"""What goes into an office and what comes out: messages between offices, scheduled work and effects.

Frozen values. Offices are named by their domain: `from_office` is the office that sends a message, `office` the one at
which the subscriber is. Times are whole microseconds. Requests and replies of subscribers are in `requests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from roamcast.deliver.port import Bookkeeping, Cursor, FiledLetter, LetterKey, PendingWork
from roamcast.deliver.requests import Notice, OfficeRequest, Reply, TraceLetter, TraceReply
from roamcast.model import Letter

__all__ = [
    "AddressUpdate", "AddressUpdateReceipt", "BundleReceipt", "ChunkReceipt", "LetterBundle", "LocationQuery",
    "LocationReply", "MailboxChunk", "MailboxClaim", "OfficeEffect", "OfficeInput", "PeerMessage", "ScheduleWork",
    "TraceQuery", "Transmit", "WorkDue",
]  # fmt: skip


# Between offices. Any of these may be lost, repeated, delayed or reordered.


@dataclass(frozen=True, slots=True)
class LetterBundle:
    """Letters for a mailbox, from the office that keeps them until it gets a receipt.

    `known_epoch` is the epoch in which the receiver was last known to be where this goes. An office without the
    mailbox forwards the bundle only to where the receiver was in a later epoch. `stamp` lets the origin check that a
    receipt comes from an office that has these letters; other offices return it unread. It is set by `Admission` when
    the message leaves the node.
    """

    receiver: str
    letters: tuple[Letter, ...]
    origin: str
    known_epoch: int
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class BundleReceipt:
    """The `accepted` letters are in the mailbox, or were before. The mailbox has no room for the `rejected` ones.

    Together they are the letters of one LetterBundle, whose `stamp` this has. `friend` says whether the domain this
    goes to is a friend domain of the receiver.
    """

    receiver: str
    accepted: tuple[LetterKey, ...]
    rejected: tuple[LetterKey, ...]
    from_office: str
    epoch: int
    friend: bool
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class LocationQuery:
    """Ask a home where its subscriber is."""

    name: str
    from_office: str


@dataclass(frozen=True, slots=True)
class LocationReply:
    """The subscriber was at `office` in `epoch`."""

    name: str
    office: str
    epoch: int


@dataclass(frozen=True, slots=True)
class MailboxClaim:
    """The subscriber is at `from_office`: deregister it and hand over its mailbox. Epoch 0 asks for the current one."""

    name: str
    epoch: int
    from_office: str
    move_proof: str


@dataclass(frozen=True, slots=True)
class MailboxChunk:
    """Part of a mailbox that now belongs to the receiving office, in `epoch`.

    The chunks up to the first one with letters carry `bookkeeping`, cut into pieces if it is large. Only the first
    chunk has `friends`. The next chunk follows after the receipt for this one.
    """

    name: str
    epoch: int
    from_office: str
    after: Cursor
    letters: tuple[FiledLetter, ...]
    last: bool
    bookkeeping: Bookkeeping | None = None
    friends: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ChunkReceipt:
    """Everything up to `cursor` is on disk here; if `complete`, the whole mailbox."""

    name: str
    epoch: int
    cursor: Cursor
    complete: bool


@dataclass(frozen=True, slots=True)
class AddressUpdate:
    """The paper's AddressUpdate, to the home and to friend domains (`friend`).

    `move_proof` is that of the arrival, only in messages to the home. It is set by `Admission` when the message leaves
    the node.
    """

    name: str
    office: str
    epoch: int
    friend: bool
    move_proof: str = ""


@dataclass(frozen=True, slots=True)
class AddressUpdateReceipt:
    """`from_office` has stored an AddressUpdate, as a friend domain or only as the home."""

    name: str
    epoch: int
    from_office: str
    friend: bool


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """Ask what became of a letter. Forwarded like a LetterBundle."""

    trace: TraceLetter
    origin: str
    known_epoch: int


PeerMessage: TypeAlias = (
    LetterBundle
    | BundleReceipt
    | LocationQuery
    | LocationReply
    | MailboxClaim
    | MailboxChunk
    | ChunkReceipt
    | AddressUpdate
    | AddressUpdateReceipt
    | TraceQuery
    | TraceReply
)


@dataclass(frozen=True, slots=True)
class WorkDue:
    """The time of a ScheduleWork has come."""

    work: PendingWork


OfficeInput: TypeAlias = OfficeRequest | PeerMessage | WorkDue


# Effects.


@dataclass(frozen=True, slots=True)
class Transmit:
    """Try to send the message to another office. Delivery is not guaranteed."""

    to: str
    message: PeerMessage


@dataclass(frozen=True, slots=True)
class ScheduleWork:
    """Pass WorkDue to the office after a random delay between `earliest` and `latest`.

    Replaces an earlier schedule of the same work. Measure delays with a monotonic clock.
    """

    work: PendingWork
    earliest: int
    latest: int


OfficeEffect: TypeAlias = Transmit | ScheduleWork | Reply | Notice
