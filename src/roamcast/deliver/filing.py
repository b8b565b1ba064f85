"""Filing: puts letters into the mailboxes of this office and hands them out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from roamcast.deliver.addressing import elsewhere_error
from roamcast.deliver.context import OfficeContext
from roamcast.deliver.mailbox import FiledLetter, Mailbox, plan_filing, take_fitting
from roamcast.deliver.requests import Acknowledge, Acknowledged, LettersReady, Pull, Pulled
from roamcast.errors import InputError
from roamcast.model import Letter
from roamcast.ranges import HIGHEST, Ranges

__all__ = ["Filing", "FilingResult"]


class FilingResult(NamedTuple):
    """`accepted` letters are in the mailbox, `new` of them were not there before; no room for the `rejected` ones."""

    accepted: list[Letter]
    rejected: list[Letter]
    new: int


class Filing:
    """Only complete mailboxes accept letters. Callers of `file` must check that."""

    def __init__(self, context: OfficeContext) -> None:
        self._context = context

    def file(self, letters: Sequence[Letter]) -> FilingResult:
        """File each letter once. A rejected letter leaves no trace, so it can be sent again.

        A mailbox is full when it has too many readable letters or, for a letter behind a missing one, too many held
        back. Held-back letters never keep out a letter that closes a gap.
        """
        store = self._context.store
        names = {letter.receiver for letter in letters}
        mailboxes = store.mailboxes(names)
        crowded = self.crowded(names, len(letters))
        if crowded:
            for name in crowded:
                self._delete_overdue(name)
            accepted, rejected = self._split(letters, {name: mailboxes.get(name, Mailbox()) for name in crowded})
        else:
            accepted, rejected = list(letters), []
        plan = plan_filing(mailboxes, accepted)
        if plan.changed:
            store.file(plan)
        for name in sorted(plan.ready):
            self._context.emit(LettersReady(name))
        return FilingResult(accepted, rejected, len(plan.filed))

    def pull(self, request: Pull) -> None:
        """Hand out letters. A letter cannot expire after it was handed out; it stays until it is acknowledged."""
        self.check_served(request.name)
        if request.limit <= 0:
            raise InputError(
                f"the limit must be at least 1, not {request.limit}", where="limit", hint="ask for at least one letter"
            )
        expired = self._delete_overdue(request.name)
        after = max(0, min(request.after, HIGHEST))
        readable = self._context.store.readable(request.name, after, min(request.limit, HIGHEST))
        letters = take_fitting(readable, request.size, lambda filed: filed.letter.body)
        expiring = [filed for filed in letters if filed.letter.expires is not None]
        if expiring:
            kept = [FiledLetter(replace(letter, expires=None), offset) for letter, offset in expiring]
            self._context.store.add_letters(request.name, kept)
        waiting = self._context.store.loads((request.name,))[request.name].readable
        self._context.emit(Pulled(request.name, tuple(letters), expired, waiting))

    def acknowledge(self, request: Acknowledge) -> None:
        self.check_served(request.name)
        mailbox = self._context.store.mailboxes((request.name,)).get(request.name)
        next_offset = 1 if mailbox is None else mailbox.next_offset
        if not 1 <= request.through < next_offset:
            used = f"offsets 1 to {next_offset - 1}" if next_offset > 1 else "no letter yet"
            raise InputError(
                f"there is no letter at offset {request.through}",
                where="through",
                hint=f"this mailbox has had {used}",
            )
        count = self._context.store.acknowledge(request.name, request.through)
        self._context.emit(Acknowledged(request.name, count))

    def check_served(self, name: str) -> None:
        """Raise ElsewhereError unless the subscriber is served here."""
        tenure = self._context.tenure(name)
        if tenure is None or not tenure.active:
            stored = self._context.store.last_known(name)
            raise elsewhere_error(name, stored.office if stored else None, stored.epoch if stored else 0)

    def crowded(self, names: Collection[str], more: int) -> set[str]:
        """Mailboxes that might not have room for `more` letters."""
        limits = self._context.limits
        most, most_held = limits.mailbox_letters - more, limits.held_letters - more
        loads = self._context.store.loads(names)
        return {name for name, (readable, held) in loads.items() if readable + held > most or held > most_held}

    def room(self, name: str) -> int:
        """How many letters the mailbox could accept now, at most."""
        limits = self._context.limits
        readable, held = self._context.store.loads((name,))[name]
        return max(0, limits.mailbox_letters - readable) + max(0, limits.held_letters - held)

    def _delete_overdue(self, name: str) -> int:
        """Delete letters whose time to live ended before they were handed out. Returns how many."""
        overdue = self._context.store.overdue(name, self._context.now)
        if overdue:
            self._context.store.expire(name, overdue)
        return len(overdue)

    def _split(self, letters: Iterable[Letter], crowded: dict[str, Mailbox]) -> tuple[list[Letter], list[Letter]]:
        """Letters there is room for, and the others."""
        limits = self._context.limits
        loads = self._context.store.loads(crowded)
        readable_room = {name: limits.mailbox_letters - load.readable for name, load in loads.items()}
        held_room = {name: limits.held_letters - load.held for name, load in loads.items()}
        received: dict[tuple[str, str], Ranges] = {}
        accepted: list[Letter] = []
        rejected: list[Letter] = []
        for letter in letters:
            if letter.receiver not in crowded:
                accepted.append(letter)
                continue
            pair = letter.receiver, letter.sender
            numbers = received.get(pair) or crowded[letter.receiver].received.get(letter.sender, Ranges())
            if letter.number not in numbers:
                becomes_readable = letter.number == numbers.first_gap
                room = readable_room if becomes_readable else held_room
                if room[letter.receiver] <= 0:
                    rejected.append(letter)
                    continue
                room[letter.receiver] -= 1
                received[pair] = numbers.add(letter.number)
            accepted.append(letter)
        return accepted, rejected
