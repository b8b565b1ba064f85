"""What an office is told, and what it wants done: frozen values.

Subscribers and the pipeline make requests; offices write to each other; the driver says when a duty is due. Offices are
named by their domain. Times are whole microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from roamcast.deliver.letters import Cursor, Fate, Key
from roamcast.deliver.mailbox import Filed
from roamcast.deliver.pending_work import Duty
from roamcast.deliver.port import Contents
from roamcast.deliver.requests import (
    Acknowledge,
    Arrive,
    Deposit,
    Pull,
    Register,
    Remove,
    Request,
    Send,
    SendAll,
    Trace,
)
from roamcast.errors import RoamcastError
from roamcast.model import Letter

__all__ = [
    "Acknowledge",
    "Acknowledged",
    "Arrive",
    "Arrived",
    "Awake",
    "Claim",
    "Departed",
    "Deposit",
    "Deposited",
    "Due",
    "Effect",
    "Expired",
    "Inquiry",
    "Located",
    "Message",
    "Moved",
    "News",
    "Noted",
    "Portion",
    "PortionTaken",
    "Post",
    "Posted",
    "Pull",
    "Pulled",
    "Query",
    "Refused",
    "Register",
    "Remove",
    "Removed",
    "Reply",
    "Request",
    "Send",
    "SendAll",
    "Sent",
    "SentAll",
    "Trace",
    "Traced",
    "Transmit",
    "Wake",
    "Wire",
]


# Between offices. Any of these may be lost, repeated, late or out of order.


@dataclass(frozen=True, slots=True)
class Post:
    """Letters for a mailbox, from the office that keeps them until they are taken.

    `known` is the epoch in which the receiver was last known to be where this goes: an office that does not have the
    mailbox passes it on only to where it was in a later one. `stamp` is the origin's, for it to tell that an answer
    comes from who has these letters; others hand it back and never look inside.
    """

    receiver: str
    letters: tuple[Letter, ...]
    origin: str
    known: int
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class Posted:
    """`taken` lie in the mailbox, or have been there; `full` were refused and stay where they are.

    Together they are the letters of one Post, whose `stamp` this has. `friend` says that the domain this goes to is
    among the receiver's friends.
    """

    receiver: str
    taken: tuple[Key, ...]
    full: tuple[Key, ...]
    office: str
    epoch: int
    friend: bool
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """To a home: where is it?"""

    name: str
    office: str


@dataclass(frozen=True, slots=True)
class Located:
    """It was there in this epoch."""

    name: str
    office: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The subscriber is with me: deregister it, and hand its mailbox over. Epoch 0 asks for the present one."""

    name: str
    epoch: int
    office: str
    warrant: str


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a mailbox that now belongs to the office this goes to, in `epoch`.

    Those up to the first with letters have `contents`, in parts if these are many; only the first has `friends`. The
    next one follows when this one is taken.
    """

    name: str
    epoch: int
    office: str
    after: Cursor
    letters: tuple[Filed, ...]
    last: bool
    contents: Contents | None = None
    friends: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PortionTaken:
    """Everything up to `cursor` is on disk here; with `complete` all of it."""

    name: str
    epoch: int
    cursor: Cursor
    complete: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """The paper's address update: to the home, and to friend domains (`friend`). `warrant` is that of the arrival."""

    name: str
    office: str
    epoch: int
    friend: bool
    warrant: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """`office` has noted a Moved, as a friend domain or only as the home."""

    name: str
    epoch: int
    office: str
    friend: bool


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What became of a letter? Passed on like a Post."""

    trace: Trace
    origin: str
    known: int


@dataclass(frozen=True, slots=True)
class Traced:
    """The answer to a Trace, on its way to the office that asked and then to who asked there."""

    ticket: str
    fate: Fate
    office: str


Wire: TypeAlias = Post | Posted | Query | Located | Claim | Portion | PortionTaken | Moved | Noted | Inquiry | Traced


@dataclass(frozen=True, slots=True)
class Due:
    """The time of a Wake has come."""

    duty: Duty


Message: TypeAlias = Request | Wire | Due


# Effects.


@dataclass(frozen=True, slots=True)
class Transmit:
    """Try to get the message to another office. No promise is needed that it arrives."""

    to: str
    message: Wire


@dataclass(frozen=True, slots=True)
class Wake:
    """Say Due at a moment picked at random, this long from now at the earliest and at the latest.

    It replaces an earlier one for the same duty. Durations are to be taken from a clock that does not jump.
    """

    duty: Duty
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """The mailbox is here, in this epoch. Also sent when nobody waits for it any more."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """An arrival came to nothing: another, in the epoch given, was later than it."""

    name: str
    office: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Departed:
    """The mailbox was given to another office: whoever waits for letters here should go there."""

    name: str
    office: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Awake:
    """Letters became readable."""

    name: str


@dataclass(frozen=True, slots=True)
class Sent:
    """The letter is on disk and will be delivered. `new` is false if it had been sent before."""

    sender: str
    receiver: str
    number: int
    new: bool


@dataclass(frozen=True, slots=True)
class SentAll:
    """What became of each."""

    outcomes: tuple[Sent | RoamcastError, ...]


@dataclass(frozen=True, slots=True)
class Deposited:
    """The letters are on disk. Those whose mailbox is not here, or is full, are queued.

    `duplicates` of those filed had been there before; `dropped` were to subscribers that have left for good.
    """

    filed: int
    queued: int
    duplicates: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Removed:
    """The name is nobody's any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Pulled:
    """Letters with their places. `expired` were not handed out because their time to live was over.

    `waiting` is how many letters the mailbox has that can be read, these among them.
    """

    name: str
    letters: tuple[Filed, ...]
    expired: int
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """So many letters were forgotten."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Expired:
    """So many letters to a subscriber were put away because somebody asked for them when their time was over."""

    name: str
    count: int


# An answer to the request in hand; and news, for a subscriber or for whoever asked, that may come at any time.
Reply: TypeAlias = Removed | Sent | SentAll | Deposited | Pulled | Acknowledged
News: TypeAlias = Arrived | Refused | Departed | Awake | Expired | Traced
Effect: TypeAlias = Transmit | Wake | Reply | News
