"""The sequence numbers of sources."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from starlette.concurrency import run_in_threadpool

from roamcast.errors import InputError
from roamcast.node.columns.arrays import Integers
from roamcast.node.schemas import HIGHEST_SEQ
from roamcast.store.registry.port import RegistryStore

__all__ = ["SequenceNumbers"]

_BLOCK = 1_000
_REQUESTS = 20  # of the same size, after which a bound is stored again


class SequenceNumbers:
    """The sequence numbers of sources. Belongs to one event loop.

    A bound above all numbers in use is stored before they are used. After a restart, numbering continues from the
    bound. The gaps are harmless; a number used twice would lose an event.
    """

    def __init__(self, registry: RegistryStore) -> None:
        self._registry = registry
        self._next: dict[str, int] = {}
        self._bounds: dict[str, int] = {}

    async def next_of(self, source: str) -> int:
        """The number that the next event would get."""
        await self._load([source])
        return self._next[source]

    async def reserve(self, source: str, count: int) -> int:
        """Reserve consecutive numbers; returns the first."""
        numbers = await self.take([source], np.zeros(count, np.int64), np.zeros(count, np.int64))
        return int(numbers[0])

    async def take(self, sources: Sequence[str], source_of: Integers, requested: Integers) -> Integers:
        """A number for each event: the requested one, or for 0 the next of its source above all others.

        `source_of` has the index of each event's source in `sources`.
        """
        await self._load(sources)
        # Without a pause up to where the next numbers are kept, so that none is given out twice.
        bases = np.array([self._next[source] for source in sources], np.int64)
        np.maximum.at(bases, source_of, requested + 1)
        is_open = requested == 0
        numbers = requested.copy()
        numbers[is_open] = bases[source_of[is_open]] + _ranks(source_of[is_open])
        following = bases + np.bincount(source_of[is_open], minlength=len(sources))
        if following.max() - 1 > HIGHEST_SEQ:
            source = sources[int(following.argmax())]
            raise InputError(
                f"source {source} has no sequence numbers left", where="seq", hint="register another source"
            )
        self._next.update(zip(sources, following.tolist(), strict=True))
        raised = following + np.maximum(_BLOCK, _REQUESTS * (following - bases))
        higher = {
            source: bound
            for source, after, bound in zip(sources, following.tolist(), raised.tolist(), strict=True)
            if after > self._bounds[source]
        }
        if higher:
            await run_in_threadpool(self._registry.raise_sequence_bounds, higher)
            for source, bound in higher.items():
                self._bounds[source] = max(bound, self._bounds[source])
        return numbers

    async def _load(self, sources: Sequence[str]) -> None:
        unknown = [source for source in sources if source not in self._next]
        if unknown:
            for source, bound in (await run_in_threadpool(self._registry.sequence_bounds, unknown)).items():
                self._bounds.setdefault(source, bound)
                self._next.setdefault(source, bound)


def _ranks(groups: Integers) -> Integers:
    """How many elements of the same group come before each."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    ranks = np.empty_like(groups)
    ranks[order] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks
