"""Sequence numbers are given out once, above all that were used, for many sources at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registries import apply, entity

from roamcast.errors import InputError, NotFoundError, StorageError
from roamcast.lab.models.registry import MemoryRegistry
from roamcast.node.intake import SequenceNumbers
from roamcast.node.schemas import HIGHEST_SEQ

SOURCES = ["a", "b", "c"]
rows = st.lists(st.tuples(st.sampled_from(SOURCES), st.just(0) | st.integers(1, 40)), min_size=1, max_size=12)


class CountingRegistry(MemoryRegistry):
    """Has some sources, and counts how often bounds were raised."""

    def __init__(self) -> None:
        super().__init__()
        self.raised: list[Mapping[str, int]] = []
        apply(self, *map(entity, SOURCES))

    def raise_sequence_bounds(self, bounds: Mapping[str, int]) -> None:
        self.raised.append(bounds)
        super().raise_sequence_bounds(bounds)


async def take(numbers: SequenceNumbers, events: list[tuple[str, int]]) -> list[int]:
    sources = list(dict.fromkeys(source for source, _ in events))
    source_of = np.array([sources.index(source) for source, _ in events])
    taken = await numbers.take(sources, source_of, np.array([seq for _, seq in events]))
    return taken.tolist()


def reference(following: dict[str, int], events: list[tuple[str, int]]) -> list[int]:
    """One by one. Requested numbers count first, wherever they are in the request."""
    for source, seq in events:
        following[source] = max(following.get(source, 1), seq + 1)
    numbers = []
    for source, seq in events:
        numbers.append(seq or following[source])
        following[source] += not seq
    return numbers


@given(requests=st.lists(rows, max_size=5), restarts=st.sets(st.integers(0, 5)))
def test_numbers_equal_those_given_one_by_one(requests: list[list[tuple[str, int]]], restarts: set[int]) -> None:
    """After a restart they are only higher."""
    registry, following = CountingRegistry(), dict[str, int]()

    async def run() -> None:
        numbers = SequenceNumbers(registry)
        for turn, events in enumerate(requests):
            if turn in restarts:
                numbers = SequenceNumbers(registry)
                for source in SOURCES:
                    bound = await numbers.next_of(source)
                    assert bound >= following.get(source, 1)
                    following[source] = bound
            assert await take(numbers, events) == reference(following, events)
            assert all(registry.sequence_bounds(SOURCES)[source] >= following[source] for source in following)

    asyncio.run(run())


def test_bounds_of_many_sources_are_raised_in_one_step() -> None:
    """And not again for the next requests."""
    registry = CountingRegistry()

    async def run() -> None:
        numbers = SequenceNumbers(registry)
        for _ in range(10):
            await take(numbers, [(source, 0) for source in SOURCES])

    asyncio.run(run())
    assert [sorted(raised) for raised in registry.raised] == [SOURCES]


def test_requests_at_the_same_time_get_different_numbers() -> None:
    async def run() -> list[list[int]]:
        numbers = SequenceNumbers(CountingRegistry())
        return await asyncio.gather(*(take(numbers, [("a", 0)] * 700 + [("b", 0)] * 3) for _ in range(20)))

    taken = asyncio.run(run())
    assert sorted(number for request in taken for number in request[:700]) == list(range(1, 14_001))
    assert sorted(number for request in taken for number in request[700:]) == list(range(1, 61))


def test_reserved_numbers_are_consecutive() -> None:
    async def run() -> list[dict[str, int]]:
        numbers = SequenceNumbers(CountingRegistry())
        return [await numbers.reserve({"a": 5, "b": 1}), await numbers.reserve({"b": 3, "a": 2})]

    assert asyncio.run(run()) == [{"a": 1, "b": 1}, {"b": 2, "a": 6}]


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(NotFoundError):
        asyncio.run(take(SequenceNumbers(CountingRegistry()), [("a", 0), ("nobody", 0)]))


def test_the_highest_number_is_the_last() -> None:
    """The error names the source."""

    async def run() -> None:
        numbers = SequenceNumbers(CountingRegistry())
        assert await take(numbers, [("b", HIGHEST_SEQ)]) == [HIGHEST_SEQ]
        with pytest.raises(InputError, match="source b has no sequence numbers left"):
            await take(numbers, [("a", 0), ("b", 0)])
        assert await take(numbers, [("a", 0)]) == [1]

    asyncio.run(run())


def test_numbers_are_not_given_out_before_their_bound_is_stored() -> None:
    """Also if another request, which fails, has raised it in memory first."""

    class Failing(CountingRegistry):
        def raise_sequence_bounds(self, bounds: Mapping[str, int]) -> None:
            if not self.raised:
                self.raised.append(bounds)
                raise StorageError("the disk is full")
            super().raise_sequence_bounds(bounds)

    registry = Failing()

    async def run() -> None:
        numbers = SequenceNumbers(registry)
        with pytest.raises(StorageError):
            await take(numbers, [("a", 0)] * 5)
        taken = await take(numbers, [("a", 0)])
        assert registry.sequence_bounds(["a"])["a"] > taken[0]

    asyncio.run(run())
