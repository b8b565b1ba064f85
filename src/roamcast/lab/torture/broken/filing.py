"""Broken filing: puts letters into mailboxes, or takes them out, wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roamcast.deliver.filing import Filing, FilingResult
from roamcast.deliver.port import FiledLetter, FilingPlan, Mailbox
from roamcast.deliver.requests import Acknowledge, Acknowledged, LettersReady, Pull, Pulled
from roamcast.model import Letter
from roamcast.ranges import Ranges

__all__ = [
    "DeletesOnPull",
    "DropsWhenFull",
    "ExpiresAfterReading",
    "ExpiresSilently",
    "HoldsNothingBack",
    "RemembersHighestNumber",
    "RemembersLastNumbers",
]

_REMEMBERED = 2


class RemembersLastNumbers(Filing):
    """Only the last few received numbers are remembered, instead of all ranges"""

    def file(self, letters: Sequence[Letter]) -> FilingResult:
        for letter in letters:
            mailbox = self._mailbox(letter)
            if letter.number <= mailbox.received.get(letter.sender, Ranges()).prefix - _REMEMBERED:
                self._append(letter, mailbox)
        return super().file(letters)

    def _mailbox(self, letter: Letter) -> Mailbox:
        return self._context.store.mailboxes([letter.receiver]).get(letter.receiver, Mailbox())

    def _append(self, letter: Letter, mailbox: Mailbox) -> None:
        """File a letter at the next offset, whatever its number."""
        offset = mailbox.next_offset
        ranges = mailbox.received.get(letter.sender, Ranges()).add(letter.number)
        received = {(letter.receiver, letter.sender): ranges}
        plan = FilingPlan([FiledLetter(letter, offset)], [], received, {letter.receiver: offset + 1}, 0)
        self._context.store.file(plan)
        self._context.emit(LettersReady((letter.receiver,)))


class HoldsNothingBack(RemembersLastNumbers):
    """Letters become readable in order of arrival, even if earlier ones are missing"""

    def file(self, letters: Sequence[Letter]) -> FilingResult:
        for letter in letters:
            mailbox = self._mailbox(letter)
            if letter.number not in mailbox.received.get(letter.sender, Ranges()):
                self._append(letter, mailbox)
        return FilingResult(list(letters), [], len(letters))


class RemembersHighestNumber(Filing):
    """Every letter at or below the highest received number is dropped"""

    def file(self, letters: Sequence[Letter]) -> FilingResult:
        above = []
        for letter in letters:
            mailbox = self._context.store.mailboxes([letter.receiver]).get(letter.receiver, Mailbox())
            spans = list(mailbox.received.get(letter.sender, Ranges()))
            if not spans or letter.number > spans[-1][1]:
                above.append(letter)
        result = super().file(above)
        return FilingResult(
            [letter for letter in letters if letter not in result.rejected], result.rejected, result.new
        )


class DropsWhenFull(Filing):
    """A full mailbox drops letters and reports them as accepted"""

    def file(self, letters: Sequence[Letter]) -> FilingResult:
        super().file(letters)
        return FilingResult(list(letters), [], len(letters))


class DeletesOnPull(Filing):
    """Letters are deleted when they are pulled, not when they are acknowledged"""

    def pull(self, request: Pull) -> None:
        super().pull(request)
        pulled = self._context.effects[-1]
        if isinstance(pulled, Pulled) and pulled.letters:
            self._context.store.acknowledge(request.name, pulled.letters[-1].offset or 0)

    def acknowledge(self, request: Acknowledge) -> None:
        self.check_served(request.name)
        self._context.emit(Acknowledged(request.name, 0))


class ExpiresSilently(Filing):
    """Expired letters disappear without being recorded"""

    def _delete_overdue(self, name: str) -> int:
        recorded = self._context.store.bookkeeping(name).expired
        super()._delete_overdue(name)
        bookkeeping = replace(self._context.store.bookkeeping(name), expired=recorded)
        self._context.store.put_bookkeeping(name, bookkeeping)
        return 0


class ExpiresAfterReading(Filing):
    """Letters can expire after they were handed out"""

    def pull(self, request: Pull) -> None:
        super().pull(request)
        pulled = self._context.effects[-1]
        if isinstance(pulled, Pulled):
            self._context.store.add_letters(request.name, pulled.letters)
