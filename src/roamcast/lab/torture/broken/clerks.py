"""Clerks that put letters into mailboxes wrongly, or take them out wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roamcast.deliver.filing import Clerk, Intake
from roamcast.deliver.mailbox import Filed, Mailbox, Receipt
from roamcast.deliver.messages import Acknowledge, Acknowledged, Awake, Pull, Pulled
from roamcast.model import Letter
from roamcast.ranges import Ranges

__all__ = [
    "DropsWhatIsFull",
    "ExpiresSilently",
    "ExpiresWhatWasRead",
    "ForgetsWhatWasPulled",
    "HighestNumber",
    "NoHoldBack",
    "Window",
]

_WINDOW = 2


class Window(Clerk):
    """A window instead of ranges: only the last few numbers are remembered"""

    def take(self, letters: Sequence[Letter]) -> Intake:
        for letter in letters:
            mailbox = self._mailbox(letter)
            if letter.number <= mailbox.received.get(letter.sender, Ranges()).prefix - _WINDOW:
                self._file(letter, mailbox)
        return super().take(letters)

    def _mailbox(self, letter: Letter) -> Mailbox:
        return self._desk.store.mailboxes([letter.receiver]).get(letter.receiver, Mailbox())

    def _file(self, letter: Letter, mailbox: Mailbox) -> None:
        """As the next, whatever its number."""
        place = mailbox.next_place
        ranges = mailbox.received.get(letter.sender, Ranges()).add(letter.number)
        after = Mailbox(place + 1, {**mailbox.received, letter.sender: ranges})
        self._desk.store.file(Receipt([Filed(letter, place)], [], {letter.receiver: after}, 0, frozenset()))
        self._desk.say(Awake(letter.receiver))


class NoHoldBack(Window):
    """Letters are handed out as they come, whatever is missing before them"""

    def take(self, letters: Sequence[Letter]) -> Intake:
        for letter in letters:
            mailbox = self._mailbox(letter)
            if letter.number not in mailbox.received.get(letter.sender, Ranges()):
                self._file(letter, mailbox)
        return Intake(list(letters), [], len(letters))


class HighestNumber(Clerk):
    """Everything at or below the highest number received is dropped"""

    def take(self, letters: Sequence[Letter]) -> Intake:
        fresh = []
        for letter in letters:
            mailbox = self._desk.store.mailboxes([letter.receiver]).get(letter.receiver, Mailbox())
            spans = list(mailbox.received.get(letter.sender, Ranges()))
            if not spans or letter.number > spans[-1][1]:
                fresh.append(letter)
        intake = super().take(fresh)
        return Intake([letter for letter in letters if letter not in intake.full], intake.full, intake.new)


class DropsWhatIsFull(Clerk):
    """A full mailbox drops letters and says it has taken them"""

    def take(self, letters: Sequence[Letter]) -> Intake:
        super().take(letters)
        return Intake(list(letters), [], len(letters))


class ForgetsWhatWasPulled(Clerk):
    """Letters are deleted when they are pulled, not when they are acknowledged"""

    def pull(self, message: Pull) -> None:
        super().pull(message)
        pulled = self._desk.effects[-1]
        if isinstance(pulled, Pulled) and pulled.letters:
            self._desk.store.acknowledge(message.name, pulled.letters[-1].place or 0)

    def acknowledge(self, message: Acknowledge) -> None:
        self.served(message.name)
        self._desk.say(Acknowledged(message.name, 0))


class ExpiresSilently(Clerk):
    """Letters whose time to live is over vanish without being counted"""

    def _put_away(self, name: str) -> int:
        noted = self._desk.store.contents(name).expired
        super()._put_away(name)
        self._desk.store.put_contents(name, replace(self._desk.store.contents(name), expired=noted))
        return 0


class ExpiresWhatWasRead(Clerk):
    """Time to live goes on after a letter was handed out"""

    def pull(self, message: Pull) -> None:
        super().pull(message)
        pulled = self._desk.effects[-1]
        if isinstance(pulled, Pulled):
            self._desk.store.add(message.name, pulled.letters)
