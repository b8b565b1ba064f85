"""What subscribers and the pipeline ask of an office: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from roamcast.model import Letter

__all__ = [
    "Acknowledge",
    "Arrive",
    "Deposit",
    "Pull",
    "Register",
    "Remove",
    "Request",
    "Send",
    "SendAll",
    "Trace",
]


@dataclass(frozen=True, slots=True)
class Register:
    """A subscriber is created in this domain. Again it is harmless."""

    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """A subscriber that is at home leaves for good: its mailbox goes, and letters to it are dropped. Again is harmless.

    Nobody has its name again. A name that nobody ever had is kept from being had.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Arrive:
    """A subscriber is here and wants its mailbox here.

    Each arrival has an epoch of its own, higher than that of any earlier one; the subscriber counts them. None: one
    more than what is known here. `previous` is the office it was last served by, if it knows. `warrant` is the
    subscriber's leave to move its mailbox; the office hands it on and never looks inside.
    """

    name: str
    epoch: int | None = None
    previous: str | None = None
    warrant: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """A subscriber that is here writes to another.

    With a number (the one after its last to this receiver) repeating the request is harmless; without, it is a new
    letter each time. `ttl` is how long the letter may wait to be read.
    """

    sender: str
    receiver: str
    body: str
    number: int | None = None
    title: str = ""
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class SendAll:
    """Several letters, in order. Each is taken or refused by itself, as if it came alone; together they are quicker."""

    letters: tuple[Send, ...]


@dataclass(frozen=True, slots=True)
class Deposit:
    """Letters of a sender that numbers them itself, as the pipeline does. Again it is harmless."""

    letters: tuple[Letter, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """The paper's MailReceiver: readable letters in order of place, those behind `after` only.

    At most `limit`, and no more than fit into `size` bytes of bodies, but always one if there is one.
    """

    name: str
    limit: int
    after: int = 0
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Letters up to and with place `through` may be forgotten. Again, late or out of order it is harmless."""

    name: str
    through: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What became of a letter that was posted here? Answered now or later, with the ticket; or never: ask again."""

    ticket: str
    receiver: str
    sender: str
    number: int


Request: TypeAlias = Register | Remove | Arrive | Send | SendAll | Deposit | Pull | Acknowledge | Trace
