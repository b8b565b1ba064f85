"""The rule of a mailbox: each letter once, and in the order its sender numbered them.

Pure: what mailboxes have had and the letters that arrive go in, what becomes of them comes out. Stores keep
the letters; this module says which of them, and in which place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.model import Letter
from roamcast.ranges import Ranges, check_bounds

__all__ = ["Filed", "Mailbox", "Receipt", "Release", "receive"]


@dataclass(frozen=True, slots=True)
class Mailbox:
    """What must be known of a mailbox to receive letters: the next free place, and what it has had by sender.

    The numbers behind a sender's first gap are those of the letters held back.
    """

    next_place: int = 1
    received: Mapping[str, Ranges] = field(default_factory=dict)


_EMPTY = Mailbox()
_NOTHING = Ranges()


class Filed(NamedTuple):
    """A letter new to its mailbox and the place it gets; None when it is held back."""

    letter: Letter
    place: int | None


class Release(NamedTuple):
    """Letters held back until now: numbers `first` to `last` get the places from `place` on."""

    receiver: str
    sender: str
    first: int
    last: int
    place: int


class Receipt(NamedTuple):
    """What receiving letters does.

    `changed` has the mailboxes that got new letters, as they are afterwards; `awake` names those in which
    letters became readable.
    """

    filed: list[Filed]
    released: list[Release]
    changed: dict[str, Mailbox]
    duplicates: int
    awake: frozenset[str]


def receive(mailboxes: Mapping[str, Mailbox], letters: Sequence[Letter]) -> Receipt:
    """What becomes of `letters`, taken in the order given; the same as if they came one by one.

    A receiver that `mailboxes` does not name has an empty one. A letter is readable when all lower numbers of
    its sender are there; it then gets the next place, and those that waited for it follow in number order.
    Raises InputError for a number out of bounds.
    """
    lines: dict[tuple[str, str], _Line] = {}
    next_places: dict[str, int] = {}
    filed: list[Filed] = []
    released: list[Release] = []
    for letter in letters:
        receiver, number = letter.receiver, letter.number
        line = lines.get((receiver, letter.sender))
        if line is None:
            before = mailboxes.get(receiver, _EMPTY).received.get(letter.sender, _NOTHING)
            line = lines[receiver, letter.sender] = _Line(before)
        if number != line.reach + 1:
            check_bounds(number)
            if number > line.reach and number not in line.early and number not in line.before:
                line.early[number] = len(filed)
                filed.append(Filed(letter, None))
            continue
        place = next_places.get(receiver)
        if place is None:
            place = mailboxes.get(receiver, _EMPTY).next_place
        filed.append(Filed(letter, place))
        line.reach, place = number, place + 1
        while line.early or line.is_broken:
            number = line.reach + 1
            if number in line.early:
                at = line.early.pop(number)
                filed[at] = Filed(filed[at].letter, place)
                line.reach, place = number, place + 1
            elif held := line.before.range_of(number):
                released.append(Release(receiver, letter.sender, *held, place))
                line.reach, place = held[1], place + held[1] - held[0] + 1
            else:
                break
        next_places[receiver] = place
    return Receipt(
        filed,
        released,
        _changed(mailboxes, lines, next_places),
        len(letters) - len(filed),
        frozenset(next_places),
    )


class _Line:
    """The letters of one sender to one receiver while a batch is received.

    `reach` is the highest number placed; `early` has, by number, those of the batch that wait, and where they are among
    the letters filed; `is_broken`: some may wait that came before.
    """

    __slots__ = ("before", "early", "is_broken", "reach")

    def __init__(self, before: Ranges) -> None:
        self.before = before
        self.reach = before.prefix
        self.is_broken = before.gaps > 0
        self.early: dict[int, int] = {}

    def after(self) -> Ranges:
        """All numbers that were had by now."""
        first = self.before.first_gap
        had = self.before.add_range(first, self.reach) if first <= self.reach else self.before
        return had.merge(list(self.early))[0] if self.early else had


def _changed(
    mailboxes: Mapping[str, Mailbox], lines: Mapping[tuple[str, str], _Line], next_places: Mapping[str, int]
) -> dict[str, Mailbox]:
    received: dict[str, dict[str, Ranges]] = {}
    for (receiver, sender), line in lines.items():
        after = line.after()
        if after is line.before:
            continue
        by_sender = received.get(receiver)
        if by_sender is None:
            by_sender = received[receiver] = dict(mailboxes.get(receiver, _EMPTY).received)
        by_sender[sender] = after
    return {
        receiver: Mailbox(next_places.get(receiver) or mailboxes.get(receiver, _EMPTY).next_place, by_sender)
        for receiver, by_sender in received.items()
    }
