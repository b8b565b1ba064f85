"""The rule of a mailbox: each letter once, in the order its sender numbered them.

Pure functions and values. `plan_filing` decides which letters enter a mailbox and at which offsets; stores carry the
plan out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from roamcast.model import Letter
from roamcast.ranges import HIGHEST, Ranges, check_bounds

__all__ = [
    "START", "Cursor", "FiledLetter", "FilingPlan", "LetterKey", "Mailbox", "Release", "bytes_in", "cursor_of",
    "is_expired", "key_of", "plan_filing", "take_fitting",
]  # fmt: skip

T = TypeVar("T")


class LetterKey(NamedTuple):
    """Identifies a letter to a given receiver."""

    sender: str
    number: int


class FiledLetter(NamedTuple):
    """A letter in a mailbox. `offset` is None while it is held back behind a missing one."""

    letter: Letter
    offset: int | None


class Cursor(NamedTuple):
    """How far a mailbox has been handed over.

    The order is: bookkeeping (offset 0, `number` counts its items), readable letters by offset, then letters held
    back (offset HIGHEST) by sender and number.
    """

    offset: int
    sender: str
    number: int


START = Cursor(0, "", 0)


def key_of(letter: Letter) -> LetterKey:
    return LetterKey(letter.sender, letter.number)


def cursor_of(filed: FiledLetter) -> Cursor:
    letter, offset = filed
    return Cursor(HIGHEST if offset is None else offset, letter.sender, letter.number)


def is_expired(letter: Letter, now: int) -> bool:
    return letter.expires is not None and letter.expires <= now


def bytes_in(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def take_fitting(items: Iterable[T], size: int | None, body: Callable[[T], str]) -> list[T]:
    """The longest prefix whose bodies have at most `size` bytes together, but at least one item."""
    if size is None:
        return list(items)
    fitting: list[T] = []
    total = 0
    for item in items:
        total += bytes_in(body(item))
        if total > size and fitting:
            break
        fitting.append(item)
    return fitting


@dataclass(slots=True)
class Mailbox:
    """What `plan_filing` needs to know of a mailbox: the next free offset and the numbers received from each sender.

    Numbers behind a sender's first gap belong to letters held back.
    """

    next_offset: int = 1
    received: dict[str, Ranges] = field(default_factory=dict)


_EMPTY = Mailbox()
_NO_NUMBERS = Ranges()


class Release(NamedTuple):
    """Held-back letters that become readable: numbers `first` to `last` get the offsets from `offset` on."""

    receiver: str
    sender: str
    first: int
    last: int
    offset: int


class FilingPlan(NamedTuple):
    """The effect of filing letters.

    `received` has all numbers received, by receiver and sender, where there are new ones. `next_offsets` has the next
    free offset of each mailbox in which letters become readable.
    """

    filed: list[FiledLetter]
    released: list[Release]
    received: dict[tuple[str, str], Ranges]
    next_offsets: dict[str, int]
    duplicates: int


def plan_filing(mailboxes: Mapping[str, Mailbox], letters: Sequence[Letter]) -> FilingPlan:
    """Plan the filing of `letters` in the given order. The result is the same as if they came one by one.

    A receiver that is not in `mailboxes` has an empty mailbox. A letter is readable when all lower numbers of its
    sender are there. It then gets the next offset, and the letters held back behind it follow in number order.
    Raises InputError for a number out of bounds.
    """
    streams: dict[tuple[str, str], _SenderStream] = {}
    next_offsets: dict[str, int] = {}
    filed: list[FiledLetter] = []
    released: list[Release] = []
    for letter in letters:
        receiver, sender, number = letter.receiver, letter.sender, letter.number
        stream = streams.get((receiver, sender))
        if stream is None:
            before = mailboxes.get(receiver, _EMPTY).received.get(sender, _NO_NUMBERS)
            stream = streams[receiver, sender] = _SenderStream(before)
        if number != stream.reach + 1:
            check_bounds(number)
            if number > stream.reach and number not in stream.early and number not in stream.before:
                stream.early[number] = len(filed)
                stream.has_gaps = True
                filed.append(FiledLetter(letter, None))
            continue
        offset = next_offsets.get(receiver) or mailboxes.get(receiver, _EMPTY).next_offset
        filed.append(FiledLetter(letter, offset))
        stream.reach, offset = number, offset + 1
        while stream.has_gaps:
            number = stream.reach + 1
            if number in stream.early:
                at = stream.early.pop(number)
                filed[at] = FiledLetter(filed[at].letter, offset)
                stream.reach, offset = number, offset + 1
            elif held := stream.before.range_of(number):
                released.append(Release(receiver, sender, *held, offset))
                stream.reach, offset = held[1], offset + held[1] - held[0] + 1
            else:
                break
        next_offsets[receiver] = offset
    received = {
        pair: numbers for pair, stream in streams.items() if (numbers := stream.received()) is not stream.before
    }
    return FilingPlan(filed, released, received, next_offsets, len(letters) - len(filed))


class _SenderStream:
    """The letters of one sender to one receiver while a batch is filed.

    `reach` is the highest number with an offset. `early` maps numbers of this batch that are held back to their index
    in the list of filed letters. `has_gaps`: letters may be held back.
    """

    __slots__ = ("before", "early", "has_gaps", "reach")

    def __init__(self, before: Ranges) -> None:
        self.before = before
        self.reach = before.prefix
        self.has_gaps = before.gaps > 0
        self.early: dict[int, int] = {}

    def received(self) -> Ranges:
        """All numbers received so far; `before` itself if there are no new ones."""
        if not self.has_gaps:
            return self.before if self.reach == self.before.prefix else Ranges.through(self.reach)
        first = self.before.first_gap
        numbers = self.before.add_range(first, self.reach) if first <= self.reach else self.before
        return numbers.merge(list(self.early))[0] if self.early else numbers
