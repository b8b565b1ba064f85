"""An office's store in memory, for tests, simulations and experiments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from roamcast.deliver.chunks import joined
from roamcast.deliver.letters import Key, expired, key_of
from roamcast.deliver.mailbox import Filed, Mailbox, Receipt
from roamcast.deliver.pending_work import Duty, Kind
from roamcast.deliver.port import Claimed, Contents, Load, Tenure, Whereabouts
from roamcast.model import Letter
from roamcast.ranges import Ranges

__all__ = ["MemoryOfficeStore"]

_ABSENT: Final = object()


@dataclass(slots=True)
class _Box:
    """The letters of one mailbox: readable by place, held by key."""

    readable: dict[int, Filed] = field(default_factory=dict)
    held: dict[Key, Filed] = field(default_factory=dict)


class MemoryOfficeStore:
    """An OfficeStore. Every change is noted with what it replaced, so that it can be undone."""

    def __init__(self) -> None:
        self._whereabouts: dict[str, Whereabouts] = {}
        self._tenures: dict[str, Tenure] = {}
        self._contents: dict[str, Contents] = {}
        self._boxes: dict[str, _Box] = {}
        self._queues: dict[str, dict[Key, Letter]] = {}
        self._claims: dict[str, Claimed] = {}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        begun = len(self._undo)
        try:
            yield
            self._commit()
        except BaseException:
            self._undo_to(begun)
            raise

    def _commit(self) -> None:
        self._undo.clear()

    def _undo_to(self, length: int) -> None:
        while len(self._undo) > length:
            table, key, before = self._undo.pop()
            if before is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = before

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def _pop(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            self._undo.append((table, key, table.pop(key)))

    # Where subscribers are.

    def whereabouts(self, name: str) -> Whereabouts | None:
        return self._whereabouts.get(name)

    def put_whereabouts(self, whereabouts: Whereabouts) -> None:
        self._put(self._whereabouts, whereabouts.name, whereabouts)

    # Mailboxes.

    def tenures(self, names: Collection[str]) -> Mapping[str, Tenure]:
        return {name: self._tenures[name] for name in names if name in self._tenures}

    def all_tenures(self) -> Mapping[str, Tenure]:
        """For whoever looks on."""
        return self._tenures

    def put_tenure(self, tenure: Tenure) -> None:
        self._put(self._tenures, tenure.name, tenure)

    def drop_tenure(self, name: str) -> None:
        for table in (self._tenures, self._contents, self._boxes):
            self._pop(table, name)

    def erase(self, name: str) -> None:
        self.drop_tenure(name)

    def mailboxes(self, names: Collection[str]) -> Mapping[str, Mailbox]:
        return {name: self._contents[name].mailbox for name in names if name in self._contents}

    def contents(self, name: str) -> Contents:
        return self._contents.get(name) or Contents()

    def put_contents(self, name: str, contents: Contents) -> None:
        self._put(self._contents, name, contents)

    def acknowledged(self, name: str) -> int:
        return self.contents(name).acknowledged

    def add_contents(self, name: str, part: Contents) -> None:
        self.put_contents(name, joined(self.contents(name), part))

    def loads(self, names: Collection[str]) -> Mapping[str, Load]:
        boxes = ((name, self._boxes.get(name)) for name in names)
        return {name: Load(len(box.readable), len(box.held)) if box else Load(0, 0) for name, box in boxes}

    def file(self, receipt: Receipt) -> None:
        for name, mailbox in receipt.changed.items():
            self.put_contents(name, replace(self.contents(name), mailbox=mailbox))
        for filed in receipt.filed:
            self.add(filed.letter.receiver, [filed])
        for release in receipt.released:
            box = self._boxes[release.receiver]
            for place, number in enumerate(range(release.first, release.last + 1), release.place):
                key = Key(release.sender, number)
                letter = box.held[key].letter
                self._pop(box.held, key)
                self._put(box.readable, place, Filed(letter, place))

    def add(self, name: str, letters: Iterable[Filed]) -> None:
        box = self._boxes.get(name)
        if box is None:
            box = _Box()
            self._put(self._boxes, name, box)
        for filed in letters:
            if filed.place is None:
                self._put(box.held, key_of(filed.letter), filed)
            else:
                self._put(box.readable, filed.place, filed)

    def readable(self, name: str, after: int, limit: int) -> list[Filed]:
        readable = self._box(name).readable
        return [readable[place] for place in sorted(place for place in readable if place > after)[:limit]]

    def held(self, name: str, after: Key, limit: int) -> list[Filed]:
        held = self._box(name).held
        return [held[key] for key in sorted(key for key in held if key > after)[:limit]]

    def overdue(self, name: str, now: int) -> list[Filed]:
        return [filed for filed in self._box(name).readable.values() if expired(filed.letter, now)]

    def letter(self, name: str, key: Key) -> Filed | None:
        box = self._box(name)
        return next((filed for filed in box.readable.values() if key_of(filed.letter) == key), box.held.get(key))

    def acknowledge(self, name: str, through: int) -> int:
        contents = self.contents(name)
        if through > contents.acknowledged:
            self.put_contents(name, replace(contents, acknowledged=through))
        readable = self._box(name).readable
        done = [place for place in readable if place <= through]
        for place in done:
            self._pop(readable, place)
        return len(done)

    def expire(self, name: str, letters: Sequence[Filed]) -> None:
        contents = self.contents(name)
        over = dict(contents.expired)
        for letter, place in letters:
            over[letter.sender] = over.get(letter.sender, Ranges()).add(letter.number)
            self._pop(self._boxes[name].readable, place)
        self.put_contents(name, replace(contents, expired=over))

    def sent(self, sender: str, receiver: str) -> int:
        return self.contents(sender).sent.get(receiver, 0)

    def put_sent(self, sender: str, receiver: str, number: int) -> None:
        contents = self.contents(sender)
        self.put_contents(sender, replace(contents, sent={**contents.sent, receiver: number}))

    def _box(self, name: str) -> _Box:
        return self._boxes.get(name) or _Box()

    # Letters to be posted.

    def enqueue(self, letters: Iterable[Letter]) -> None:
        for letter in letters:
            queue = self._queues.get(letter.receiver)
            if queue is None:
                queue = {}
                self._put(self._queues, letter.receiver, queue)
            if (key := key_of(letter)) not in queue:
                self._put(queue, key, letter)

    def queued(self, receiver: str, after: Key, limit: int) -> list[Letter]:
        queue = self._queues.get(receiver, {})
        return [queue[key] for key in sorted(key for key in queue if key > after)[:limit]]

    def queue_length(self, receiver: str) -> int:
        return len(self._queues.get(receiver, ()))

    def unposted(self, sender: str) -> int:
        return sum(key.sender == sender for queue in self._queues.values() for key in queue)

    def dequeue(self, receiver: str, keys: Iterable[Key]) -> list[Letter]:
        queue = self._queues.get(receiver, {})
        taken = [queue[key] for key in dict.fromkeys(keys) if key in queue]
        for letter in taken:
            self._pop(queue, key_of(letter))
        return taken

    # Arrivals.

    def claimed(self, name: str) -> Claimed | None:
        return self._claims.get(name)

    def put_claimed(self, claimed: Claimed) -> None:
        self._put(self._claims, claimed.name, claimed)

    def drop_claimed(self, name: str) -> None:
        self._pop(self._claims, name)

    def duties(self) -> list[Duty]:
        return [
            *(Duty(Kind.POST, name) for name, queue in self._queues.items() if queue),
            *(Duty(Kind.HAND, name) for name, tenure in self._tenures.items() if tenure.leaving),
            *(Duty(Kind.TELL, name) for name, tenure in self._tenures.items() if tenure.untold),
            *(Duty(Kind.CLAIM, name) for name in self._claims),
        ]
