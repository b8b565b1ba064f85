"""Sets of numbers that are nearly dense: what was received, kept exactly and in little room."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from roamcast.errors import CorruptionError, InputError

__all__ = ["HIGHEST", "Ranges", "check_bounds"]

HIGHEST = 2**63 - 1
"""The highest number: what a 64-bit column holds."""

Span = tuple[int, int]

_BOUNDS = f"numbers run upwards from 1 to {HIGHEST}"

_first = itemgetter(0)
_last = itemgetter(1)


@dataclass(frozen=True, slots=True, repr=False)
class Ranges:
    """An immutable set of numbers from 1 to HIGHEST, as sorted closed ranges with a gap between any two.

    Lookups take O(log n) for n ranges. Numbers outside the bounds raise InputError when they are added.
    """

    _spans: tuple[Span, ...] = ()

    def __contains__(self, number: int) -> bool:
        return self.range_of(number) is not None

    def __len__(self) -> int:
        """How many numbers there are (not how many ranges)."""
        return sum(last - first + 1 for first, last in self._spans)

    def __iter__(self) -> Iterator[Span]:
        """The ranges as (first, last), in order."""
        return iter(self._spans)

    def __repr__(self) -> str:
        return f"Ranges({self.to_text()!r})"

    @property
    def gaps(self) -> int:
        """How many stretches are missing below the highest number."""
        return len(self._spans) - (self.prefix > 0)

    @property
    def first_gap(self) -> int:
        """The lowest number from 1 on that is not in the set."""
        return self.prefix + 1

    @property
    def prefix(self) -> int:
        """The highest number up to which nothing is missing; 0 when 1 is."""
        return self._spans[0][1] if self._spans and self._spans[0][0] == 1 else 0

    def range_of(self, number: int) -> Span | None:
        """The range that `number` lies in."""
        at = bisect_right(self._spans, number, key=_first) - 1
        return self._spans[at] if at >= 0 and number <= self._spans[at][1] else None

    def add(self, number: int) -> Ranges:
        return self.add_range(number, number)

    def add_range(self, first: int, last: int) -> Ranges:
        """With all numbers from `first` to `last`, both included."""
        if not 1 <= first <= last <= HIGHEST:
            raise InputError(f"numbers {first} to {last} are out of bounds", hint=_BOUNDS)
        spans = self._spans
        if len(spans) == 1 and spans[0][0] <= first == spans[0][1] + 1:  # the usual case: the next in order
            return Ranges(((spans[0][0], last),))
        start = bisect_left(spans, first - 1, key=_last)
        end = bisect_right(spans, last + 1, key=_first)
        if start < end:  # these overlap or touch it, and become one with it
            first = min(first, spans[start][0])
            last = max(last, spans[end - 1][1])
        return Ranges((*spans[:start], (first, last), *spans[end:]))

    def union(self, other: Ranges) -> Ranges:
        if not self._spans or not other._spans:
            return self if self._spans else other
        return Ranges(_joined(sorted((*self._spans, *other._spans))))

    def merge(self, numbers: Sequence[int]) -> tuple[Ranges, list[bool]]:
        """With `numbers`, and for each of them whether it was new. Of equal ones only the first counts.

        Any order will do, and sorted numbers are quickest. Nothing is added if one of them is out of bounds.
        """
        if len(numbers) == 1 and numbers[0] not in self:  # the usual case of a batch with many receivers
            return self.add(numbers[0]), [True]
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        new = [False] * len(numbers)
        fresh: list[Span] = []
        last = 0
        for at in order:
            number = numbers[at]
            check_bounds(number)
            if number > last and number not in self:
                new[at] = True
                fresh.append((number, number))
            last = number
        return self.union(Ranges(_joined(fresh))) if fresh else self, new

    def to_text(self) -> str:
        """Such as `1-5,7`; the empty text for none."""
        return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in self._spans)

    @classmethod
    def from_text(cls, text: str) -> Ranges:
        """Reads exactly what `to_text` writes; anything else raises CorruptionError."""
        try:
            ranges = cls(tuple(_span(part) for part in text.split(",")) if text else ())
        except ValueError:
            ranges = cls()
        spans = ranges._spans
        in_order = all(first <= last for first, last in spans) and all(
            following[0] > last + 1 for (_, last), following in pairwise(((-1, -1), *spans))
        )
        if not in_order or ranges.to_text() != text or (spans and spans[-1][1] > HIGHEST):
            raise CorruptionError(f"{text[:80]!r} is not a list of ranges", hint="restore it from a backup")
        return ranges


def check_bounds(number: int) -> None:
    """Raises InputError."""
    if not 1 <= number <= HIGHEST:
        raise InputError(f"number {number} is out of bounds", hint=_BOUNDS)


def _span(part: str) -> Span:
    first, dash, last = part.partition("-")
    return int(first), int(last) if dash else int(first)


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Sorted spans, with those made one that overlap or touch."""
    joined: list[Span] = []
    first, last = spans[0]
    for following in spans[1:]:
        if following[0] > last + 1:
            joined.append((first, last))
            first, last = following
        elif following[1] > last:
            last = following[1]
    joined.append((first, last))
    return tuple(joined)
