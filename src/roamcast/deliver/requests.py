"""Requests of subscribers and of the pipeline to an office, with the replies and notices they get.

Frozen values. Times are whole microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from roamcast.deliver.port import FiledLetter
from roamcast.errors import RoamcastError
from roamcast.model import Letter

__all__ = [
    "Acknowledge", "Acknowledged", "ArrivalRefused", "Arrive", "Arrived", "Departed", "Deposit", "Deposited",
    "LetterSent", "LetterState", "LettersExpired", "LettersReady", "LettersSent", "MailboxPull", "Notice",
    "OfficeRequest", "Pull", "PullMany", "Pulled", "PulledMany", "Register", "Remove", "Removed", "Reply", "SendLetter",
    "SendLetters", "TraceLetter", "TraceReply",
]  # fmt: skip


# Requests.


@dataclass(frozen=True, slots=True)
class Register:
    """Create a subscriber in this domain. Idempotent."""

    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a subscriber whose mailbox is at home. Drops the mailbox and all letters to it. Idempotent.

    The name is never given out again. An unused name can be removed too; it is then blocked.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Arrive:
    """A subscriber is here and wants its mailbox moved here.

    The subscriber counts its arrivals: each has a higher epoch than all earlier ones. None means one more than the
    latest epoch known here. `previous` is the office that served it last, if known. `move_proof` authorises the
    migration; the office passes it on without interpreting it. With `is_recall` a home calls its own subscriber back.
    """

    name: str
    epoch: int | None = None
    previous: str | None = None
    move_proof: str = ""
    is_recall: bool = False


class SendLetter(NamedTuple):
    """A subscriber served here writes to another.

    With a number (one more than that of its last letter to this receiver) the request is idempotent. Without one,
    every request sends a new letter. `ttl` is how long the letter may wait to be read.
    """

    sender: str
    receiver: str
    body: str
    number: int | None = None
    title: str = ""
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class SendLetters:
    """Send several letters in order. Each is accepted or rejected on its own, as if sent alone, but faster."""

    letters: tuple[SendLetter, ...]


@dataclass(frozen=True, slots=True)
class Deposit:
    """Letters of a sender that numbers them itself, such as the pipeline. Idempotent."""

    letters: tuple[Letter, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """Read the letters after offset `after`, in order. The paper's MailReceiver.

    Returns at most `limit` letters and at most `size` bytes of bodies, but at least one letter if there is one.
    """

    name: str
    limit: int
    after: int = 0
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Delete letters up to and including offset `through`. Idempotent; late or reordered requests do no harm."""

    name: str
    through: int


class MailboxPull(NamedTuple):
    """Acknowledge through offset `through`, unless it is 0, then read at most `limit` letters after it."""

    name: str
    through: int
    limit: int


@dataclass(frozen=True, slots=True)
class PullMany:
    """Acknowledge and read many mailboxes. Each is served or refused on its own, as by Acknowledge and Pull.

    Returns at most `size` bytes of bodies, but at least one letter if there is one. All mailboxes with letters have the
    same share, but at least a letter each, until `size` is used up. Mailbox number `first` comes first; with another
    number each time, none is always too late.
    """

    pulls: tuple[MailboxPull, ...]
    size: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class TraceLetter:
    """Ask what became of a letter posted here.

    The TraceReply carries the ticket. It may come later, or never: then ask again.
    """

    ticket: str
    receiver: str
    sender: str
    number: int


OfficeRequest: TypeAlias = (
    Register | Remove | Arrive | SendLetter | SendLetters | Deposit | Pull | PullMany | Acknowledge | TraceLetter
)


# Replies, each to the request being handled.


@dataclass(frozen=True, slots=True)
class Removed:
    """The subscriber is removed."""

    name: str


class LetterSent(NamedTuple):
    """The letter is on disk and will be delivered. `new` is false if it had been sent before."""

    sender: str
    receiver: str
    number: int
    new: bool


@dataclass(frozen=True, slots=True)
class LettersSent:
    """The outcome of each letter of a SendLetters, in order."""

    outcomes: tuple[LetterSent | RoamcastError, ...]


@dataclass(frozen=True, slots=True)
class Deposited:
    """The letters are on disk. Those whose mailbox is elsewhere, or full, are queued.

    `duplicates` of the accepted letters had been filed before; `dropped` letters were addressed to removed subscribers.
    """

    accepted: int
    queued: int
    duplicates: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Pulled:
    """Letters with their offsets. `expired` letters were not handed out because their time to live had ended.

    `waiting` counts the readable letters of the mailbox, including these. `acknowledged` letters were deleted before.
    """

    name: str
    letters: tuple[FiledLetter, ...]
    expired: int
    waiting: int = 0
    acknowledged: int = 0


@dataclass(frozen=True, slots=True)
class PulledMany:
    """The outcome for each mailbox of a PullMany, in order."""

    outcomes: tuple[Pulled | RoamcastError, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """`count` letters were deleted."""

    name: str
    count: int


Reply: TypeAlias = Removed | LetterSent | LettersSent | Deposited | Pulled | PulledMany | Acknowledged


# Notices. They may come at any time, to the subscriber or to the client that asked.


@dataclass(frozen=True, slots=True)
class Arrived:
    """The mailbox is here, in this epoch. Sent even if nobody waits for it any more."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ArrivalRefused:
    """An arrival failed because the subscriber arrived at `office` later, in `epoch`."""

    name: str
    office: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Departed:
    """The mailbox was given to another office. Clients that wait for letters here should go there."""

    name: str
    office: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LettersReady:
    """Letters became readable in these mailboxes."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LettersExpired:
    """`count` letters to a subscriber were deleted because a trace found that their time to live had ended."""

    name: str
    count: int


class LetterState(StrEnum):
    """What became of a letter."""

    QUEUED = "queued"  # at the office where it was posted, which keeps trying
    NOT_ARRIVED = "not_arrived"  # the mailbox has not received it
    HELD_BACK = "held_back"  # in the mailbox, behind a missing letter
    READABLE = "readable"  # in the mailbox
    ACKNOWLEDGED = "acknowledged"  # by its receiver
    EXPIRED = "expired"  # its time to live ended before it was read
    NO_RECEIVER = "no_receiver"  # the home does not know the receiver


@dataclass(frozen=True, slots=True)
class TraceReply:
    """The answer to a TraceLetter: sent to the office that asked, then to the client that asked there."""

    ticket: str
    state: LetterState
    office: str


Notice: TypeAlias = Arrived | ArrivalRefused | Departed | LettersReady | LettersExpired | TraceReply
