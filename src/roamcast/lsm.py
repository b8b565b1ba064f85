"""The merge policy of log-structured stacks.

A stack is a sequence of immutable pieces, oldest first. A change adds a piece on top; from time to time the top of the
stack is merged into one piece. A stack then has a logarithmic number of pieces, and a row is rewritten a logarithmic
number of times.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_to_merge"]


def first_to_merge(sizes: Sequence[int], *, ratio: int, small: int = 0) -> int:
    """Return the index from which the pieces of a stack should be merged; `len(sizes)` if none should.

    `sizes` are rows or bytes, oldest first. A piece is merged with everything above it if it is at most `ratio` times
    as large, or if together they have at most `small`. Afterwards each piece is more than `ratio` times as large as
    all those above it together.
    """
    above, first = 0, len(sizes)
    for at in reversed(range(len(sizes))):
        if above and sizes[at] <= max(ratio * above, small - above):
            first = at
        above += sizes[at]
    return first
