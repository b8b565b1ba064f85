"""Whether an archive has everything of a range of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from roamcast.archive.reader import Coverage, CoverageError
from roamcast.model import BEFORE_ALL, iso

__all__ = ["archive_end", "check_covered"]


def archive_end(coverage: Mapping[str, Sequence[Coverage]]) -> int:
    """When the last record of any node was written. Raises CoverageError if there is none."""
    if not coverage:
        raise CoverageError("the archive is empty", hint="it fills with the first batch of the pipeline")
    return max(ranges[-1].end for ranges in coverage.values())


def check_covered(coverage: Mapping[str, Sequence[Coverage]], begin: int, end: int) -> None:
    """Raises CoverageError if records of begin <= written < end are missing; it says what is covered."""
    if begin > archive_end(coverage):
        raise CoverageError(f"the archive ends at {iso(archive_end(coverage))}", where="from", hint=_hint(coverage))
    for node, ranges in coverage.items():
        for after, before in _gaps(ranges):
            if after < end and begin < before:
                since = "" if after == BEFORE_ALL else f" after {iso(after)}"
                message = f"records of {node} are not archived{since} until {iso(before)}"
                raise CoverageError(message, where="from", hint=_hint(coverage))


def _gaps(ranges: Sequence[Coverage]) -> Iterator[tuple[int, int]]:
    """The times of the last record before a gap in the offsets, and of the first after it."""
    if ranges[0].first_offset > 1:
        yield BEFORE_ALL, ranges[0].begin
    for one, other in pairwise(ranges):
        yield one.end, other.begin


def _hint(coverage: Mapping[str, Sequence[Coverage]]) -> str:
    """What is covered."""
    parts = (
        f"{node} from {' and '.join(f'{iso(each.begin)} to {iso(each.end)}' for each in ranges)}"
        for node, ranges in sorted(coverage.items())
    )
    return f"the archive has {', '.join(parts)}"
