"""Compact, exact sets of numbers that are nearly dense, such as the numbers received from a sender."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from roamcast.errors import CorruptionError, InputError

__all__ = ["HIGHEST", "Ranges", "check_bounds"]

HIGHEST = 2**63 - 1
"""The highest number: the maximum of a signed 64-bit column."""

Span = tuple[int, int]

_BOUNDS = f"use numbers from 1 to {HIGHEST}"

_first = itemgetter(0)
_last = itemgetter(1)


@dataclass(frozen=True, slots=True, repr=False)
class Ranges:
    """An immutable set of numbers from 1 to HIGHEST, as sorted closed ranges with gaps between them.

    Lookups take O(log n) for n ranges. Adding a number out of bounds raises InputError.
    """

    _spans: tuple[Span, ...] = ()

    def __contains__(self, number: int) -> bool:
        return self.range_of(number) is not None

    def __len__(self) -> int:
        """The count of numbers, not of ranges."""
        return sum(last - first + 1 for first, last in self._spans)

    def __iter__(self) -> Iterator[Span]:
        """The ranges as (first, last), in order."""
        return iter(self._spans)

    def __repr__(self) -> str:
        return f"Ranges({self.to_text()!r})"

    @classmethod
    def through(cls, last: int) -> Ranges:
        """All numbers from 1 to `last`; none for 0."""
        return cls(((1, last),)) if last else cls()

    @property
    def gaps(self) -> int:
        """How many gaps there are below the highest number."""
        return len(self._spans) - (self.prefix > 0)

    @property
    def first_gap(self) -> int:
        """The lowest number that is not in the set."""
        return self.prefix + 1

    @property
    def prefix(self) -> int:
        """The highest number up to which none is missing; 0 if 1 is missing."""
        return self._spans[0][1] if self._spans and self._spans[0][0] == 1 else 0

    def range_of(self, number: int) -> Span | None:
        """The range that contains `number`."""
        at = bisect_right(self._spans, number, key=_first) - 1
        return self._spans[at] if at >= 0 and number <= self._spans[at][1] else None

    def add(self, number: int) -> Ranges:
        return self.add_range(number, number)

    def add_range(self, first: int, last: int) -> Ranges:
        """Add all numbers from `first` to `last`, both included."""
        if not 1 <= first <= last <= HIGHEST:
            raise InputError(f"numbers {first} to {last} are out of bounds", hint=_BOUNDS)
        spans = self._spans
        if len(spans) == 1 and spans[0][0] <= first == spans[0][1] + 1:  # the usual case: the next number
            return Ranges(((spans[0][0], last),))
        start = bisect_left(spans, first - 1, key=_last)
        end = bisect_right(spans, last + 1, key=_first)
        if start < end:  # merge the ranges that overlap or touch it
            first = min(first, spans[start][0])
            last = max(last, spans[end - 1][1])
        return Ranges((*spans[:start], (first, last), *spans[end:]))

    def union(self, other: Ranges) -> Ranges:
        if not self._spans or not other._spans:
            return self if self._spans else other
        return Ranges(_coalesce(sorted((*self._spans, *other._spans))))

    def merge(self, numbers: Sequence[int]) -> tuple[Ranges, list[bool]]:
        """Add `numbers`. Also returns whether each was new; among equal ones only the first counts.

        Numbers may be in any order; sorted ones are fastest. Raises InputError if one is out of bounds.
        """
        if self._is_new_run(numbers):  # the usual case
            return self.add_range(numbers[0], numbers[-1]), [True] * len(numbers)
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        new = [False] * len(numbers)
        added: list[Span] = []
        last = 0
        for at in order:
            number = numbers[at]
            check_bounds(number)
            if number > last and number not in self:
                new[at] = True
                added.append((number, number))
            last = number
        return self.union(Ranges(_coalesce(added))) if added else self, new

    def _is_new_run(self, numbers: Sequence[int]) -> bool:
        """Whether these are consecutive rising numbers, none of which is in the set."""
        if not numbers or list(numbers) != list(range(numbers[0], numbers[0] + len(numbers))):
            return False
        return bisect_left(self._spans, numbers[0], key=_last) == bisect_right(self._spans, numbers[-1], key=_first)

    def to_text(self) -> str:
        """Format the set, such as `1-5,7`; empty for the empty set."""
        return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in self._spans)

    @classmethod
    def from_text(cls, text: str) -> Ranges:
        """Parse exactly what `to_text` returns. Raises CorruptionError for anything else."""
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
    """Raise InputError if `number` is out of bounds."""
    if not 1 <= number <= HIGHEST:
        raise InputError(f"number {number} is out of bounds", hint=_BOUNDS)


def _span(part: str) -> Span:
    first, dash, last = part.partition("-")
    return int(first), int(last) if dash else int(first)


def _coalesce(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Merge sorted spans that overlap or touch."""
    merged: list[Span] = []
    first, last = spans[0]
    for following in spans[1:]:
        if following[0] > last + 1:
            merged.append((first, last))
            first, last = following
        elif following[1] > last:
            last = following[1]
    merged.append((first, last))
    return tuple(merged)
