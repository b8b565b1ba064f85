"""Compares the id table with a dict."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from roamcast.bind.nearest.kernels.id_table import IdTable, find_ids, insert_ids
from roamcast.errors import ConflictError

FREE = -1

# Any text: also empty, with line breaks, and with halves of surrogate pairs.
ids = st.text(st.characters(exclude_categories=()) | st.sampled_from("ab\n\0\xff\ud800\udfff"), max_size=12)


def table_of(*ids: str) -> IdTable:
    table = IdTable()
    table.add(ids, np.arange(len(ids), dtype=np.int32))
    return table


class Dictionary(RuleBasedStateMachine):
    """Ids are added and removed; handles are used again, the last released first."""

    def __init__(self) -> None:
        super().__init__()
        self.table = IdTable()
        self.known: dict[str, int] = {}
        self.free: list[int] = []
        self.count = 0

    @rule(new=st.lists(ids, unique=True, max_size=30))
    def add(self, new: list[str]) -> None:
        new = [id for id in new if id not in self.known]
        handles = []
        for id in new:
            if not self.free:
                self.free.append(self.count)
                self.count += 1
            handles.append(self.free.pop())
            self.known[id] = handles[-1]
        self.table.add(new, np.array(handles, np.int32))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), count=st.integers(1, 20))
    def remove(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.known))):
            handle = self.known.pop(data.draw(st.sampled_from(sorted(self.known))))
            self.table.remove(handle)
            self.free.append(handle)

    @rule(queried=st.lists(ids))
    def find(self, queried: list[str]) -> None:
        queried += list(self.known)[::2]
        assert self.table.find(queried).tolist() == [self.known.get(id, -1) for id in queried]

    @invariant()
    def ids_and_handles_are_one_to_one(self) -> None:
        assert len(self.table) == len(self.known)
        assert {self.table[handle]: handle for handle in self.known.values()} == self.known


TestDictionary = Dictionary.TestCase


@given(st.lists(ids, unique=True, min_size=1), st.data())
def test_a_duplicate_id_raises(given: list[str], data: st.DataObject) -> None:
    """Whether it was there before or is repeated in the batch."""
    again = data.draw(st.sampled_from(given))
    with pytest.raises(ConflictError, match="in use"):
        table_of(*given, again)
    table = table_of(*given)
    with pytest.raises(ConflictError, match="in use"):
        table.add([again], np.array([len(given)], np.int32))
    assert table.find([again]).tolist() == [given.index(again)]


def test_the_table_can_grow_after_a_conflict() -> None:
    """Also while somebody keeps the exception."""
    table = table_of("a")
    with pytest.raises(ConflictError) as kept:
        table.add(["a"], np.array([1], np.int32))
    table.add([f"longer {number}" for number in range(100)], np.arange(1, 101, dtype=np.int32))
    assert table[100] == "longer 99"
    assert kept.value is not None


def test_prefixes_are_different_ids() -> None:
    """Also ids that concatenate to the same text."""
    table = table_of("ab", "a", "abc", "b", "")
    assert table.find(["", "a", "b", "ab", "abc", "c", "bc", "abca"]).tolist() == [4, 1, 3, 0, 2, -1, -1, -1]


def test_lanes_find_the_same_handles() -> None:
    """A large batch is split over several calls."""
    rng = np.random.default_rng(5)
    known = [f"entity-{number}" for number in range(20_000)]
    with ThreadPoolExecutor(3) as pool:
        table = IdTable(3, pool.map)
        table.add(known, np.arange(len(known), dtype=np.int32))
        queried = rng.integers(0, 25_000, 10_000)
        handles = table.find([f"entity-{number}" for number in queried.tolist()])
    assert (handles == np.where(queried < len(known), queried, -1)).all()


@pytest.mark.parametrize("other", [b"one", b"tow", b"twofold", b"t"])
def test_ids_with_equal_partial_hashes_are_distinguished(other: bytes) -> None:
    """A slot whose hash part matches may hold another id."""
    text = np.frombuffer(bytearray(b"\xff" + other + b"\xfftwo\xff"), np.uint8)
    start, key = np.array([1, len(other) + 2]), np.array([1, 2], np.uint64)
    given, ends = np.frombuffer(bytearray(b"two\n"), np.uint8), np.array([3])
    slots, scratch, handles = np.full(8, FREE, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int32)
    insert_ids(key, slots, start, text, np.array([1], np.int32))
    (at,) = np.flatnonzero(slots != FREE).tolist()
    slots[at], slots[(at + 1) % 8] = slots[at] ^ 1, slots[at]
    find_ids(0, 1, key, slots, start, text, given, ends, scratch, handles)
    assert handles.tolist() == [1]
    slots[(at + 1) % 8] = FREE
    find_ids(0, 1, key, slots, start, text, given, ends, scratch, handles)
    assert handles.tolist() == [-1]
