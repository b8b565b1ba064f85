"""The store of an office in memory, for tests, simulations and experiments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from roamcast.deliver.chunks import merge_chunk
from roamcast.deliver.port import (
    Bookkeeping,
    FiledLetter,
    FilingPlan,
    LastKnownOffice,
    LetterKey,
    Mailbox,
    MailboxLoad,
    PendingClaim,
    PendingWork,
    Tenure,
    WorkKind,
    is_expired,
    key_of,
    take_fitting,
)
from roamcast.model import Letter
from roamcast.ranges import Ranges

__all__ = ["MemoryOfficeStore", "after_filing"]

_ABSENT: Final = object()


@dataclass(slots=True)
class _MailboxLetters:
    """The letters of one mailbox: readable ones by offset, held ones by key."""

    readable: dict[int, FiledLetter] = field(default_factory=dict)
    held: dict[LetterKey, FiledLetter] = field(default_factory=dict)


class MemoryOfficeStore:
    """An OfficeStore. Logs the old value of every change, so that transactions can be rolled back."""

    def __init__(self) -> None:
        self._last_known: dict[str, LastKnownOffice] = {}
        self._tenures: dict[str, Tenure] = {}
        self._bookkeeping: dict[str, Bookkeeping] = {}
        self._letters: dict[str, _MailboxLetters] = {}
        self._queues: dict[str, dict[LetterKey, Letter]] = {}
        self._claims: dict[str, PendingClaim] = {}
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

    def last_known(self, name: str) -> LastKnownOffice | None:
        return self._last_known.get(name)

    def put_last_known(self, last_known: LastKnownOffice) -> None:
        self._put(self._last_known, last_known.name, last_known)

    def tenures(self, names: Collection[str]) -> Mapping[str, Tenure]:
        return {name: self._tenures[name] for name in names if name in self._tenures}

    def all_tenures(self) -> Mapping[str, Tenure]:
        """All of them, for observers."""
        return self._tenures

    def put_tenure(self, tenure: Tenure) -> None:
        self._put(self._tenures, tenure.name, tenure)

    def drop_mailbox(self, name: str) -> None:
        for table in (self._tenures, self._bookkeeping, self._letters):
            self._pop(table, name)

    def erase_mailbox(self, name: str) -> None:
        self.drop_mailbox(name)

    def mailboxes(self, names: Collection[str]) -> Mapping[str, Mailbox]:
        return {name: self._bookkeeping[name].mailbox for name in names if name in self._bookkeeping}

    def bookkeeping(self, name: str) -> Bookkeeping:
        return self._bookkeeping.get(name) or Bookkeeping()

    def put_bookkeeping(self, name: str, bookkeeping: Bookkeeping) -> None:
        self._put(self._bookkeeping, name, bookkeeping)

    def acknowledged(self, name: str) -> int:
        return self.bookkeeping(name).acknowledged

    def add_bookkeeping(self, name: str, chunk: Bookkeeping) -> None:
        self.put_bookkeeping(name, merge_chunk(self.bookkeeping(name), chunk))

    def loads(self, names: Collection[str]) -> Mapping[str, MailboxLoad]:
        letters = {name: self._mailbox(name) for name in names}
        return {name: MailboxLoad(len(mailbox.readable), len(mailbox.held)) for name, mailbox in letters.items()}

    def file(self, plan: FilingPlan) -> None:
        mailboxes = self.mailboxes({receiver for receiver, _ in plan.received})
        for name, mailbox in after_filing(mailboxes, plan).items():
            self.put_bookkeeping(name, replace(self.bookkeeping(name), mailbox=mailbox))
        for filed in plan.filed:
            self.add_letters(filed.letter.receiver, [filed])
        for release in plan.released:
            letters = self._letters[release.receiver]
            for offset, number in enumerate(range(release.first, release.last + 1), release.offset):
                key = LetterKey(release.sender, number)
                letter = letters.held[key].letter
                self._pop(letters.held, key)
                self._put(letters.readable, offset, FiledLetter(letter, offset))

    def add_letters(self, name: str, letters: Iterable[FiledLetter]) -> None:
        mailbox = self._letters.get(name)
        if mailbox is None:
            mailbox = _MailboxLetters()
            self._put(self._letters, name, mailbox)
        for filed in letters:
            if filed.offset is None:
                self._put(mailbox.held, key_of(filed.letter), filed)
            else:
                self._put(mailbox.readable, filed.offset, filed)

    def readable(self, name: str, after: int, limit: int, size: int | None = None) -> list[FiledLetter]:
        readable = self._mailbox(name).readable
        letters = [readable[offset] for offset in sorted(offset for offset in readable if offset > after)[:limit]]
        return take_fitting(letters, size, lambda filed: filed.letter.body)

    def held(self, name: str, after: LetterKey, limit: int) -> list[FiledLetter]:
        held = self._mailbox(name).held
        return [held[key] for key in sorted(key for key in held if key > after)[:limit]]

    def overdue(self, name: str, now: int) -> list[FiledLetter]:
        return [filed for filed in self._mailbox(name).readable.values() if is_expired(filed.letter, now)]

    def letter(self, name: str, key: LetterKey) -> FiledLetter | None:
        mailbox = self._mailbox(name)
        return next(
            (filed for filed in mailbox.readable.values() if key_of(filed.letter) == key), mailbox.held.get(key)
        )

    def acknowledge(self, name: str, through: int) -> int:
        bookkeeping = self.bookkeeping(name)
        if through > bookkeeping.acknowledged:
            self.put_bookkeeping(name, replace(bookkeeping, acknowledged=through))
        readable = self._mailbox(name).readable
        acknowledged = [offset for offset in readable if offset <= through]
        for offset in acknowledged:
            self._pop(readable, offset)
        return len(acknowledged)

    def expire(self, name: str, letters: Sequence[FiledLetter]) -> None:
        bookkeeping = self.bookkeeping(name)
        expired = dict(bookkeeping.expired)
        for letter, offset in letters:
            expired[letter.sender] = expired.get(letter.sender, Ranges()).add(letter.number)
            self._pop(self._letters[name].readable, offset)
        self.put_bookkeeping(name, replace(bookkeeping, expired=expired))

    def last_sent(self, sender: str, receivers: Collection[str]) -> dict[str, int]:
        sent = self.bookkeeping(sender).sent
        return {receiver: sent.get(receiver, 0) for receiver in receivers}

    def put_last_sent(self, sender: str, numbers: Mapping[str, int]) -> None:
        bookkeeping = self.bookkeeping(sender)
        self.put_bookkeeping(sender, replace(bookkeeping, sent={**bookkeeping.sent, **numbers}))

    def _mailbox(self, name: str) -> _MailboxLetters:
        return self._letters.get(name) or _MailboxLetters()

    def enqueue(self, letters: Iterable[Letter]) -> None:
        for letter in letters:
            queue = self._queues.get(letter.receiver)
            if queue is None:
                queue = {}
                self._put(self._queues, letter.receiver, queue)
            if (key := key_of(letter)) not in queue:
                self._put(queue, key, letter)

    def queued(self, receiver: str, after: LetterKey, limit: int) -> list[Letter]:
        queue = self._queues.get(receiver, {})
        return [queue[key] for key in sorted(key for key in queue if key > after)[:limit]]

    def queue_length(self, receiver: str) -> int:
        return len(self._queues.get(receiver, ()))

    def unposted_count(self, sender: str) -> int:
        return sum(key.sender == sender for queue in self._queues.values() for key in queue)

    def dequeue(self, receiver: str, keys: Iterable[LetterKey]) -> list[Letter]:
        queue = self._queues.get(receiver, {})
        letters = [queue[key] for key in dict.fromkeys(keys) if key in queue]
        for letter in letters:
            self._pop(queue, key_of(letter))
        return letters

    def pending_claim(self, name: str) -> PendingClaim | None:
        return self._claims.get(name)

    def put_claim(self, claim: PendingClaim) -> None:
        self._put(self._claims, claim.name, claim)

    def drop_claim(self, name: str) -> None:
        self._pop(self._claims, name)

    def pending_work(self) -> list[PendingWork]:
        return [
            *(PendingWork(WorkKind.POST, name) for name, queue in self._queues.items() if queue),
            *(PendingWork(WorkKind.HAND_OVER, name) for name, tenure in self._tenures.items() if tenure.leaving),
            *(PendingWork(WorkKind.NOTIFY, name) for name, tenure in self._tenures.items() if tenure.unnotified),
            *(PendingWork(WorkKind.CLAIM, name) for name in self._claims),
        ]


def after_filing(mailboxes: Mapping[str, Mailbox], plan: FilingPlan) -> dict[str, Mailbox]:
    """The mailboxes with new letters, in their new state."""
    changed: dict[str, Mailbox] = {}
    for (receiver, sender), numbers in plan.received.items():
        before = changed.get(receiver) or mailboxes.get(receiver) or Mailbox()
        next_offset = plan.next_offsets.get(receiver, before.next_offset)
        changed[receiver] = Mailbox(next_offset, {**before.received, sender: numbers})
    return changed
