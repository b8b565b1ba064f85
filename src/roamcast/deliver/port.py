"""The port through which an office keeps what it must not forget, and the records it keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from roamcast.deliver.letters import Cursor, Key
from roamcast.deliver.mailbox import Filed, Mailbox, Receipt
from roamcast.deliver.pending_work import Duty
from roamcast.model import Letter
from roamcast.ranges import Ranges

__all__ = [
    "NOBODY",
    "RECALL",
    "Arriving",
    "Claimed",
    "Contents",
    "Leaving",
    "Load",
    "OfficeStore",
    "Tenure",
    "Whereabouts",
]


NOBODY: Final = ""

RECALL: Final = "recall"
"""The warrant of a home that calls its own subscriber back, and does not give up."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a subscriber was in an epoch, the latest that is known; mostly by hearsay.

    Kept by its home, by offices whose address book it is in (`acquaintance`), and, for good, by offices it has been
    served by. `past` is the last epoch in which it was served here, or for which its mailbox was given away here, 0 for
    none: what comes of one up to that is late, whatever others say. An `office` that is NOBODY says that the subscriber
    has left for good.
    """

    name: str
    office: str
    epoch: int
    acquaintance: bool = False
    past: int = 0

    @property
    def gone(self) -> bool:
        return self.office == NOBODY


@dataclass(frozen=True, slots=True)
class Arriving:
    """Another office hands the mailbox over, and is this far; up to place 0 with what the mailbox knows."""

    office: str
    epoch: int
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Leaving:
    """The mailbox belongs to another office, in an epoch of its own, and stays here until that one has all of it."""

    office: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Tenure:
    """An office's part in the mailbox of a subscriber.

    `friends` are the domains whose address book the subscriber is in (the paper's FriDom), or is about to be; `untold`
    those of them, and the home, that are not known to have heard of this epoch.
    """

    name: str
    epoch: int
    friends: frozenset[str] = frozenset()
    untold: frozenset[str] = frozenset()
    arriving: Arriving | None = None
    leaving: Leaving | None = None

    @property
    def active(self) -> bool:
        """The subscriber is served here: from when all that its mailbox knows has come, and until it leaves."""
        return self.leaving is None and (self.arriving is None or self.arriving.cursor.place > 0)

    @property
    def settled(self) -> bool:
        """Active, with everything in it here: only then does the mailbox take letters, or leave."""
        return self.leaving is None and self.arriving is None


@dataclass(frozen=True, slots=True)
class Contents:
    """What a mailbox knows besides its letters. All of it travels with the mailbox.

    `acknowledged` is the place through which letters were acknowledged; `sent` has the number of the last letter its
    owner sent to each receiver; `expired` the letters, by sender, whose time to live was over before they were read.
    """

    mailbox: Mailbox = field(default_factory=Mailbox)
    acknowledged: int = 0
    sent: Mapping[str, int] = field(default_factory=dict)
    expired: Mapping[str, Ranges] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A subscriber is here and its mailbox is asked for. Epoch 0 while the present one is not known.

    `asked` are the offices that it was claimed from: from nobody else is it taken.
    """

    name: str
    epoch: int
    previous: str | None
    warrant: str
    asked: frozenset[str] = frozenset()


class Load(NamedTuple):
    """How many letters of a mailbox are readable and how many are held back."""

    readable: int
    held: int


class OfficeStore(Protocol):
    """All that one office must not forget. Used by one thread at a time, and only inside a transaction."""

    def transaction(self) -> AbstractContextManager[None]:
        """What is changed inside is on disk, all of it, when this ends; none of it if this raises.

        Raises StorageError when the disk refuses. Reads see what was changed before in the same transaction.
        """

    def whereabouts(self, name: str) -> Whereabouts | None: ...

    def put_whereabouts(self, whereabouts: Whereabouts) -> None: ...

    def tenures(self, names: Collection[str]) -> Mapping[str, Tenure]:
        """Those that exist."""

    def put_tenure(self, tenure: Tenure) -> None: ...

    def drop_tenure(self, name: str) -> None:
        """With the contents and the letters of the mailbox."""

    def erase(self, name: str) -> None:
        """As `drop_tenure`; and nothing of its letters is left behind, not even of those acknowledged before."""

    def mailboxes(self, names: Collection[str]) -> Mapping[str, Mailbox]:
        """Of those that have contents."""

    def contents(self, name: str) -> Contents:
        """Empty where nothing was put."""

    def put_contents(self, name: str, contents: Contents) -> None: ...

    def acknowledged(self, name: str) -> int:
        """Of its contents, without reading the others."""

    def add_contents(self, name: str, part: Contents) -> None:
        """Join it to what is there, at a cost that depends little on how much that is."""

    def loads(self, names: Collection[str]) -> Mapping[str, Load]:
        """Of every name."""

    def file(self, receipt: Receipt) -> None:
        """Do what receiving letters does."""

    def add(self, name: str, letters: Iterable[Filed]) -> None:
        """Letters, each with its place. One that is there is replaced."""

    def readable(self, name: str, after: int, limit: int) -> list[Filed]:
        """Those behind a place, in order of place."""

    def held(self, name: str, after: Key, limit: int) -> list[Filed]:
        """Those held back behind a key, in order of sender and number."""

    def overdue(self, name: str, now: int) -> list[Filed]:
        """Readable letters whose time to live is over."""

    def letter(self, name: str, key: Key) -> Filed | None: ...

    def acknowledge(self, name: str, through: int) -> int:
        """Delete the letters up to and with this place, and note it unless a higher one is; how many there were."""

    def expire(self, name: str, letters: Sequence[Filed]) -> None:
        """Delete these, which are readable, and note that they expired."""

    def sent(self, sender: str, receiver: str) -> int:
        """The number of the last letter, 0 for none."""

    def put_sent(self, sender: str, receiver: str, number: int) -> None: ...

    def enqueue(self, letters: Iterable[Letter]) -> None:
        """Letters to be posted. One that is queued stays as it is."""

    def queued(self, receiver: str, after: Key, limit: int) -> list[Letter]:
        """In order of sender and number."""

    def queue_length(self, receiver: str) -> int: ...

    def unposted(self, sender: str) -> int:
        """How many letters of a sender are queued, to whomever."""

    def dequeue(self, receiver: str, keys: Iterable[Key]) -> list[Letter]:
        """Those that were queued."""

    def claimed(self, name: str) -> Claimed | None: ...

    def put_claimed(self, claimed: Claimed) -> None: ...

    def drop_claimed(self, name: str) -> None: ...

    def duties(self) -> list[Duty]:
        """One for every queue, every mailbox that leaves, every one with domains untold, and every claim."""
