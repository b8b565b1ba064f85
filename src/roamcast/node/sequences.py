"""The sequence numbers of sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

    async def reserve(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Reserve consecutive numbers of each source; returns the first ones."""
        sources = list(counts)
        await self._load(sources)
        bases = self._next_of(sources)
        await self._advance(sources, bases, bases + np.array(list(counts.values()), np.int64))
        return dict(zip(sources, bases.tolist(), strict=True))

    async def take(self, sources: Sequence[str], source_of: Integers, requested: Integers) -> Integers:
        """A number for each event: the requested one, or for 0 the next of its source above all others.

        `source_of` has the index of each event's source in `sources`.
        """
        await self._load(sources)
        bases = self._next_of(sources)
        np.maximum.at(bases, source_of, requested + 1)
        is_open = requested == 0
        numbers = requested.copy()
        numbers[is_open] = bases[source_of[is_open]] + _ranks(source_of[is_open])
        following = bases + np.bincount(source_of[is_open], minlength=len(sources))
        await self._advance(sources, bases, following)
        return numbers

    def _next_of(self, sources: Sequence[str]) -> Integers:
        """The next numbers. Call `_advance` without a pause in between, so that none is given out twice."""
        return np.array([self._next[source] for source in sources], np.int64)

    async def _advance(self, sources: Sequence[str], bases: Integers, following: Integers) -> None:
        """Continue the numbers of each source from `following`, once bounds above are stored."""
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
