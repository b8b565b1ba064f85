"""The port through which an office stores its state, and the values it stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeVar

from roamcast.model import Letter
from roamcast.ranges import HIGHEST, Ranges

__all__ = [
    "NO_OFFICE", "START", "Arriving", "Bookkeeping", "Cursor", "FiledLetter", "FilingPlan", "LastKnownOffice",
    "Leaving", "LetterKey", "Mailbox", "MailboxLoad", "OfficeStore", "PendingClaim", "PendingWork", "Release", "Tenure",
    "WorkKind", "bytes_in", "cursor_of", "is_expired", "key_of", "take_fitting",
]  # fmt: skip

T = TypeVar("T")


class LetterKey(NamedTuple):
    """Identifies a letter to a given receiver."""

    sender: str
    number: int


class FiledLetter(NamedTuple):
    """A letter in a mailbox. `offset` is None while it is held back behind a missing one."""

    letter: Letter
    offset: int | None


class Cursor(NamedTuple):
    """How far a mailbox has been handed over.

    The order is: bookkeeping (offset 0, `number` counts its items), readable letters by offset, then letters held
    back (offset HIGHEST) by sender and number.
    """

    offset: int
    sender: str
    number: int


START = Cursor(0, "", 0)


def key_of(letter: Letter) -> LetterKey:
    return LetterKey(letter.sender, letter.number)


def cursor_of(filed: FiledLetter) -> Cursor:
    letter, offset = filed
    return Cursor(HIGHEST if offset is None else offset, letter.sender, letter.number)


def is_expired(letter: Letter, now: int) -> bool:
    return letter.expires is not None and letter.expires <= now


def bytes_in(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def take_fitting(items: Iterable[T], size: int | None, body: Callable[[T], str]) -> list[T]:
    """The longest prefix whose bodies have at most `size` bytes together, but at least one item."""
    if size is None:
        return list(items)
    fitting: list[T] = []
    total = 0
    for item in items:
        total += bytes_in(body(item))
        if total > size and fitting:
            break
        fitting.append(item)
    return fitting


@dataclass(slots=True)
class Mailbox:
    """What `plan_filing` needs to know of a mailbox: the next free offset and the numbers received from each sender.

    Numbers behind a sender's first gap belong to letters held back.
    """

    next_offset: int = 1
    received: dict[str, Ranges] = field(default_factory=dict)


class Release(NamedTuple):
    """Held-back letters that become readable: numbers `first` to `last` get the offsets from `offset` on."""

    receiver: str
    sender: str
    first: int
    last: int
    offset: int


class FilingPlan(NamedTuple):
    """The effect of filing letters.

    `received` has all numbers received, by receiver and sender, where there are new ones. `next_offsets` has the next
    free offset of each mailbox in which letters become readable.
    """

    filed: list[FiledLetter]
    released: list[Release]
    received: dict[tuple[str, str], Ranges]
    next_offsets: dict[str, int]
    duplicates: int


NO_OFFICE: Final = ""
"""The office of a subscriber that was removed."""


@dataclass(frozen=True, slots=True)
class LastKnownOffice:
    """The latest known office of a subscriber, usually as reported by another office.

    Kept by the home, by offices that have the subscriber in their address book (`acquaintance`), and permanently by
    offices that have served it. `past_epoch` is the last epoch in which it was served here or in which its mailbox was
    given away from here, 0 if none: messages of epochs up to that one are late, whatever other offices say.
    """

    name: str
    office: str
    epoch: int
    acquaintance: bool = False
    past_epoch: int = 0

    @property
    def is_removed(self) -> bool:
        return self.office == NO_OFFICE


@dataclass(frozen=True, slots=True)
class Arriving:
    """Another office is handing the mailbox over and has got as far as `cursor`."""

    office: str
    epoch: int
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Leaving:
    """The mailbox belongs to another office, in a later epoch. It stays here until that office has all of it."""

    office: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Tenure:
    """An office's responsibility for the mailbox of a subscriber.

    `friends` are the domains that have the subscriber in their address book, or soon will (the paper's FriDom).
    `unnotified` are those of them, and the home, that have not yet confirmed this epoch.
    """

    name: str
    epoch: int
    friends: frozenset[str] = frozenset()
    unnotified: frozenset[str] = frozenset()
    arriving: Arriving | None = None
    leaving: Leaving | None = None

    @property
    def active(self) -> bool:
        """Whether the subscriber is served here: from when all bookkeeping has arrived until the mailbox leaves."""
        return self.leaving is None and (self.arriving is None or self.arriving.cursor.offset > 0)

    @property
    def complete(self) -> bool:
        """Whether it is active and everything is here. Only then can the mailbox accept letters, or leave."""
        return self.leaving is None and self.arriving is None


@dataclass(frozen=True, slots=True)
class Bookkeeping:
    """The state of a mailbox apart from its letters. It moves with the mailbox.

    Letters through offset `acknowledged` were acknowledged. `sent` has the number of the subscriber's last letter to
    each receiver. `expired` has, by sender, the letters whose time to live ended before they were read.
    """

    mailbox: Mailbox = field(default_factory=Mailbox)
    acknowledged: int = 0
    sent: Mapping[str, int] = field(default_factory=dict)
    expired: Mapping[str, Ranges] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PendingClaim:
    """A subscriber has arrived and its mailbox is claimed from other offices. Epoch 0: not known yet.

    The mailbox is accepted only from `asked_offices`. With `is_recall` a home calls its own subscriber back; such a
    claim is never given up.
    """

    name: str
    epoch: int
    previous: str | None
    move_proof: str
    asked_offices: frozenset[str] = frozenset()
    is_recall: bool = False


class MailboxLoad(NamedTuple):
    """How many letters of a mailbox are readable and how many are held back."""

    readable: int
    held: int


class WorkKind(StrEnum):
    """What an office retries until it is done."""

    POST = "post"  # post the letters queued for a receiver
    NOTIFY = "notify"  # tell the home and friend domains where a subscriber is
    CLAIM = "claim"  # claim the mailbox of a subscriber that has arrived
    HAND_OVER = "hand over"  # hand a mailbox over


class PendingWork(NamedTuple):
    """Work of one kind for one subscriber. It follows from the stored state, so it survives a crash."""

    kind: WorkKind
    name: str


class OfficeStore(Protocol):
    """The durable state of one office. Used by one thread at a time, and only inside a transaction."""

    def transaction(self) -> AbstractContextManager[None]:
        """Make the changes inside the block durable when it ends, all of them, or none if it raises.

        Raises StorageError. Reads see the earlier changes of the same transaction.
        """

    def last_known(self, name: str) -> LastKnownOffice | None: ...

    def put_last_known(self, last_known: LastKnownOffice) -> None: ...

    def tenures(self, names: Collection[str]) -> Mapping[str, Tenure]:
        """The tenures that exist."""

    def put_tenure(self, tenure: Tenure) -> None: ...

    def drop_mailbox(self, name: str) -> None:
        """Delete the tenure, the bookkeeping and the letters."""

    def erase_mailbox(self, name: str) -> None:
        """Like `drop_mailbox`, but also delete the remains of acknowledged letters from disk."""

    def mailboxes(self, names: Collection[str]) -> Mapping[str, Mailbox]:
        """The mailboxes that have bookkeeping. They are not copies: later changes may be seen in them."""

    def bookkeeping(self, name: str) -> Bookkeeping:
        """Empty if nothing was stored."""

    def put_bookkeeping(self, name: str, bookkeeping: Bookkeeping) -> None: ...

    def acknowledged(self, name: str) -> int:
        """`bookkeeping(name).acknowledged`, without reading the rest."""

    def add_bookkeeping(self, name: str, chunk: Bookkeeping) -> None:
        """Merge a chunk into the stored bookkeeping. The cost depends little on how much is stored."""

    def loads(self, names: Collection[str]) -> Mapping[str, MailboxLoad]:
        """For every name; zero for unknown ones."""

    def file(self, plan: FilingPlan) -> None:
        """Carry out the result of `plan_filing`."""

    def add_letters(self, name: str, letters: Iterable[FiledLetter]) -> None:
        """Insert letters at their offsets, replacing existing ones."""

    def readable(self, name: str, after: int, limit: int, size: int | None = None) -> list[FiledLetter]:
        """Letters after an offset, in order: at most `limit`, as many as `take_fitting` would return for `size`."""

    def held(self, name: str, after: LetterKey, limit: int) -> list[FiledLetter]:
        """Letters held back, after a key, in order of sender and number."""

    def overdue(self, name: str, now: int) -> list[FiledLetter]:
        """Readable letters whose time to live has ended."""

    def letter(self, name: str, key: LetterKey) -> FiledLetter | None: ...

    def acknowledge(self, name: str, through: int) -> int:
        """Delete the letters up to and including this offset. Returns how many. Never lowers `acknowledged`."""

    def expire(self, name: str, letters: Sequence[FiledLetter]) -> None:
        """Delete readable letters and record them as expired."""

    def last_sent(self, sender: str, receivers: Collection[str]) -> dict[str, int]:
        """The number of the last letter to each receiver, 0 if none."""

    def put_last_sent(self, sender: str, numbers: Mapping[str, int]) -> None: ...

    def enqueue(self, letters: Iterable[Letter]) -> None:
        """Queue letters for posting. A letter that is already queued is left unchanged."""

    def queued(self, receiver: str, after: LetterKey, limit: int) -> list[Letter]:
        """In order of sender and number."""

    def queue_length(self, receiver: str) -> int: ...

    def unposted_count(self, sender: str) -> int:
        """How many letters of a sender are queued, to any receiver."""

    def dequeue(self, receiver: str, keys: Iterable[LetterKey]) -> list[Letter]:
        """Remove letters from the queue. Returns those that were queued."""

    def pending_claim(self, name: str) -> PendingClaim | None: ...

    def put_claim(self, claim: PendingClaim) -> None: ...

    def drop_claim(self, name: str) -> None: ...

    def pending_work(self) -> list[PendingWork]:
        """One item for every queue, leaving mailbox, tenure with unnotified domains, and claim."""
