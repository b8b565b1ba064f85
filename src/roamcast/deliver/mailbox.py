"""The rule of a mailbox: each letter once, and in the order its sender numbered them.

Pure: what mailboxes have had and the letters that arrive go in, what becomes of them comes out. Stores keep
the letters; this module says which of them, and in which place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.deliver.ranges import Ranges
from roamcast.model import Letter

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
    lines, new = _lines(mailboxes, letters)
    next_places: dict[str, int] = {}
    places: dict[int, int | None] = {}
    released: list[Release] = []
    for at, letter in enumerate(letters):
        if not new[at]:
            continue
        line = lines[letter.receiver, letter.sender]
        places[at] = None
        line.early[letter.number] = at
        if letter.number != line.reach + 1:
            continue
        place = next_places.get(letter.receiver)
        if place is None:
            place = mailboxes.get(letter.receiver, _EMPTY).next_place
        while True:
            number = line.reach + 1
            if number in line.early:
                places[line.early.pop(number)] = place
                line.reach = number
                place += 1
            elif held := line.before.range_of(number):
                released.append(Release(letter.receiver, letter.sender, *held, place))
                line.reach = held[1]
                place += held[1] - held[0] + 1
            else:
                break
        next_places[letter.receiver] = place
    return Receipt(
        [Filed(letters[at], place) for at, place in places.items()],
        released,
        _changed(mailboxes, lines, next_places),
        len(letters) - len(places),
        frozenset(next_places),
    )


@dataclass(slots=True)
class _Line:
    """The letters of one sender to one receiver while a batch is received.

    `reach` is the highest number placed; `early` has, by number, those of the batch that wait.
    """

    before: Ranges
    after: Ranges
    reach: int
    early: dict[int, int] = field(default_factory=dict)


def _lines(
    mailboxes: Mapping[str, Mailbox], letters: Sequence[Letter]
) -> tuple[dict[tuple[str, str], _Line], list[bool]]:
    """The lines by receiver and sender, and for each letter whether it is new."""
    members: dict[tuple[str, str], list[int]] = {}
    for at, letter in enumerate(letters):
        members.setdefault((letter.receiver, letter.sender), []).append(at)
    lines = {}
    is_new = [False] * len(letters)
    for (receiver, sender), ats in members.items():
        before = mailboxes.get(receiver, _EMPTY).received.get(sender, _NOTHING)
        after, new = before.merge([letters[at].number for at in ats])
        for at, flag in zip(ats, new, strict=True):
            is_new[at] = flag
        lines[receiver, sender] = _Line(before, after, before.prefix)
    return lines, is_new


def _changed(
    mailboxes: Mapping[str, Mailbox], lines: Mapping[tuple[str, str], _Line], next_places: Mapping[str, int]
) -> dict[str, Mailbox]:
    received: dict[str, dict[str, Ranges]] = {}
    for (receiver, sender), line in lines.items():
        if line.after is not line.before:
            received.setdefault(receiver, dict(mailboxes.get(receiver, _EMPTY).received))[sender] = line.after
    return {
        receiver: Mailbox(next_places.get(receiver, mailboxes.get(receiver, _EMPTY).next_place), by_sender)
        for receiver, by_sender in received.items()
    }
