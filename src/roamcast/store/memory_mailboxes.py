"""The mailboxes in memory, for tests and experiments: nothing is durable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from roamcast.deliver.letters import fitting
from roamcast.deliver.mailbox import Mailbox, receive
from roamcast.deliver.ranges import Ranges
from roamcast.model import Letter
from roamcast.store import refusals
from roamcast.store.port import Delivery, Entry

__all__ = ["MemoryMailboxes"]


@dataclass(slots=True)
class _Contents:
    """The letters of one mailbox: readable by place, dense from `lowest` on; held by sender and number."""

    lowest: int = 1
    readable: dict[int, Entry] = field(default_factory=dict)
    held: dict[tuple[str, int], str] = field(default_factory=dict)


class MemoryMailboxes:
    """A MailboxStore."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._mailboxes: dict[str, Mailbox] = {}
        self._contents: dict[str, _Contents] = {}
        self._erased: set[str] = set()

    def deliver(self, letters: Sequence[Letter]) -> Delivery:
        with self._lock:
            receipt = receive(self._mailboxes, [it for it in letters if it.receiver not in self._erased])
            for receiver in receipt.changed:
                self._contents.setdefault(receiver, _Contents())
            for letter, place in receipt.filed:
                contents = self._contents[letter.receiver]
                if place is None:
                    contents.held[letter.sender, letter.number] = letter.body
                else:
                    contents.readable[place] = Entry(place, letter.sender, letter.number, letter.body)
            for release in receipt.released:
                contents = self._contents[release.receiver]
                for place, number in enumerate(range(release.first, release.last + 1), release.place):
                    body = contents.held.pop((release.sender, number))
                    contents.readable[place] = Entry(place, release.sender, number, body)
            self._mailboxes.update(receipt.changed)
        return Delivery(len(receipt.filed), receipt.duplicates, receipt.awake)

    def pull(self, receiver: str, limit: int, after: int = 0, *, size: int | None = None) -> list[Entry]:
        if limit <= 0:
            raise refusals.bad_limit(limit)
        with self._lock:
            contents = self._contents.get(receiver, _Contents())
            places = range(max(after + 1, contents.lowest), contents.lowest + len(contents.readable))
            return fitting((contents.readable[place] for place in places[:limit]), size, lambda entry: entry.body)

    def acknowledge(self, receiver: str, through: int) -> int:
        with self._lock:
            next_place = self._mailboxes.get(receiver, Mailbox()).next_place
            if not 1 <= through < next_place:
                raise refusals.no_such_place(through, next_place)
            contents = self._contents[receiver]
            places = range(contents.lowest, through + 1)
            for place in places:
                del contents.readable[place]
            contents.lowest = max(contents.lowest, through + 1)
            return len(places)

    def erase(self, receivers: Iterable[str]) -> None:
        with self._lock:
            for receiver in receivers:
                self._erased.add(receiver)
                self._mailboxes.pop(receiver, None)
                self._contents.pop(receiver, None)

    def waiting(self, receiver: str) -> int:
        with self._lock:
            return len(self._contents.get(receiver, _Contents()).readable)

    def held_back(self, receiver: str) -> int:
        with self._lock:
            return len(self._contents.get(receiver, _Contents()).held)

    def received(self, receiver: str) -> Mapping[str, Ranges]:
        with self._lock:
            return dict(self._mailboxes.get(receiver, Mailbox()).received)

    def close(self) -> None:
        """Nothing to release."""
