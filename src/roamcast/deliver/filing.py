"""The clerk of an office: puts letters into the mailboxes that are here, and hands them out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from roamcast.deliver import refusals
from roamcast.deliver.context import Desk
from roamcast.deliver.letters import fitting
from roamcast.deliver.mailbox import Filed, Mailbox, receive
from roamcast.deliver.messages import Acknowledge, Acknowledged, Awake, Pull, Pulled
from roamcast.model import Letter
from roamcast.ranges import HIGHEST, Ranges

__all__ = ["Clerk", "Intake"]


class Intake(NamedTuple):
    """Letters that are in their mailbox, now or before, those for which there is no room, and how many were new."""

    taken: list[Letter]
    full: list[Letter]
    new: int


class Clerk:
    """Letters are taken only into mailboxes that are settled here; whoever calls `take` has made sure of it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def take(self, letters: Sequence[Letter]) -> Intake:
        """Each letter once. A letter that is refused leaves no trace, so that it may come again.

        A mailbox is full when it has so many readable letters, or, for a letter behind one that is missing, so many
        held back. A letter that closes a gap is never kept out by those that wait for it.
        """
        store = self._desk.store
        names = {letter.receiver for letter in letters}
        mailboxes = store.mailboxes(names)
        crowded = self.crowded(names, len(letters))
        if crowded:
            for name in crowded:
                self._put_away(name)
            taken, full = self._sift(letters, {name: mailboxes.get(name, Mailbox()) for name in crowded})
        else:
            taken, full = list(letters), []
        receipt = receive(mailboxes, taken)
        if receipt.changed:
            store.file(receipt)
        for name in sorted(receipt.awake):
            self._desk.say(Awake(name))
        return Intake(taken, full, len(receipt.filed))

    def pull(self, message: Pull) -> None:
        """Time to live ends with the first hand-out: from then on a letter stays until it is acknowledged."""
        self.served(message.name)
        if message.limit <= 0:
            raise refusals.bad_limit(message.limit)
        dead = self._put_away(message.name)
        after = max(0, min(message.after, HIGHEST))
        found = self._desk.store.readable(message.name, after, min(message.limit, HIGHEST))
        letters = fitting(found, message.size, lambda filed: filed.letter.body)
        mortal = [filed for filed in letters if filed.letter.expires is not None]
        if mortal:
            self._desk.store.add(message.name, [Filed(replace(it.letter, expires=None), it.place) for it in mortal])
        waiting = self._desk.store.loads((message.name,))[message.name].readable
        self._desk.say(Pulled(message.name, tuple(letters), dead, waiting))

    def acknowledge(self, message: Acknowledge) -> None:
        self.served(message.name)
        mailbox = self._desk.store.mailboxes((message.name,)).get(message.name)
        next_place = 1 if mailbox is None else mailbox.next_place
        if not 1 <= message.through < next_place:
            raise refusals.no_such_place(message.through, next_place)
        count = self._desk.store.acknowledge(message.name, message.through)
        self._desk.say(Acknowledged(message.name, count))

    def served(self, name: str) -> None:
        """Raises ElsewhereError unless the subscriber is served here."""
        tenure = self._desk.tenure(name)
        if tenure is None or not tenure.active:
            last = self._desk.store.whereabouts(name)
            raise refusals.elsewhere(name, last.office if last else None, last.epoch if last else 0)

    def crowded(self, names: Collection[str], more: int) -> set[str]:
        """Those that might not have room for so many letters."""
        rules = self._desk.rules
        most, most_held = rules.capacity - more, rules.early - more
        loads = self._desk.store.loads(names)
        return {name for name, (readable, held) in loads.items() if readable + held > most or held > most_held}

    def room(self, name: str) -> int:
        """How many letters the mailbox could take now, if they were the right ones."""
        rules = self._desk.rules
        readable, held = self._desk.store.loads((name,))[name]
        return max(0, rules.capacity - readable) + max(0, rules.early - held)

    def _put_away(self, name: str) -> int:
        """Letters whose time to live is over before they were ever handed out; how many there were."""
        over = self._desk.store.overdue(name, self._desk.now)
        if over:
            self._desk.store.expire(name, over)
        return len(over)

    def _sift(self, letters: Iterable[Letter], crowded: dict[str, Mailbox]) -> tuple[list[Letter], list[Letter]]:
        """Those that can be taken and those that cannot."""
        rules = self._desk.rules
        rooms = {
            name: [rules.capacity - load.readable, rules.early - load.held]
            for name, load in self._desk.store.loads(crowded).items()
        }
        had: dict[tuple[str, str], Ranges] = {}
        taken: list[Letter] = []
        full: list[Letter] = []
        for letter in letters:
            if letter.receiver not in crowded:
                taken.append(letter)
                continue
            line = letter.receiver, letter.sender
            ranges = had.get(line) or crowded[letter.receiver].received.get(letter.sender, Ranges())
            if letter.number not in ranges:
                room = rooms[letter.receiver]
                kind = 0 if letter.number == ranges.first_gap else 1
                if room[kind] <= 0:
                    full.append(letter)
                    continue
                room[kind] -= 1
                had[line] = ranges.add(letter.number)
            taken.append(letter)
        return taken, full
