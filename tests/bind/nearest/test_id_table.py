"""Names say the same as a dict."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from roamcast.bind.nearest.id_table import Names
from roamcast.bind.nearest.kernels.names import FREE, enter, find
from roamcast.errors import ConflictError

# Any text: also empty, with line breaks, and with halves of surrogate pairs.
ids = st.text(st.characters(exclude_categories=()) | st.sampled_from("ab\n\0\xff\ud800\udfff"), max_size=12)


def named(*given: str) -> Names:
    names = Names()
    names.add(given, np.arange(len(given), dtype=np.int32))
    return names


class Dictionary(RuleBasedStateMachine):
    """Ids come and go; handles are used again, the last to be given back first."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Names()
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
        self.names.add(new, np.array(handles, np.int32))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), count=st.integers(1, 20))
    def remove(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.known))):
            handle = self.known.pop(data.draw(st.sampled_from(sorted(self.known))))
            self.names.remove(handle)
            self.free.append(handle)

    @rule(asked=st.lists(ids))
    def find(self, asked: list[str]) -> None:
        asked += list(self.known)[::2]
        assert self.names.find(asked).tolist() == [self.known.get(id, -1) for id in asked]

    @invariant()
    def ids_and_handles_are_one_to_one(self) -> None:
        assert len(self.names) == len(self.known)
        assert {self.names[handle]: handle for handle in self.known.values()} == self.known


TestDictionary = Dictionary.TestCase


@given(st.lists(ids, unique=True, min_size=1), st.data())
def test_an_id_that_is_taken(given: list[str], data: st.DataObject) -> None:
    """An id has one handle, whether it was there before or comes twice."""
    again = data.draw(st.sampled_from(given))
    with pytest.raises(ConflictError, match="taken"):
        named(*given, again)
    names = named(*given)
    with pytest.raises(ConflictError, match="taken"):
        names.add([again], np.array([len(given)], np.int32))
    assert names.find([again]).tolist() == [given.index(again)]


def test_names_go_on_after_a_refusal() -> None:
    """An error that somebody keeps does not keep anybody from being named."""
    names = named("a")
    with pytest.raises(ConflictError) as kept:
        names.add(["a"], np.array([1], np.int32))
    names.add([f"longer {number}" for number in range(100)], np.arange(1, 101, dtype=np.int32))
    assert names[100] == "longer 99"
    assert kept.value is not None


def test_part_of_an_id_is_another_id() -> None:
    """Ids of which one begins like the other, or which together read alike, are told apart."""
    names = named("ab", "a", "abc", "b", "")
    assert names.find(["", "a", "b", "ab", "abc", "c", "bc", "abca"]).tolist() == [4, 1, 3, 0, 2, -1, -1, -1]


def test_many_ids_in_lanes() -> None:
    """A large batch gives the same whether one call works on it or several do."""
    rng = np.random.default_rng(5)
    known = [f"entity-{number}" for number in range(20_000)]
    with ThreadPoolExecutor(3) as pool:
        names = Names(3, pool.map)
        names.add(known, np.arange(len(known), dtype=np.int32))
        asked = rng.integers(0, 25_000, 10_000)
        found = names.find([f"entity-{number}" for number in asked.tolist()])
    assert (found == np.where(asked < len(known), asked, -1)).all()


@pytest.mark.parametrize("other", [b"one", b"tow", b"twofold", b"t"])
def test_ids_whose_hashes_agree_in_part(other: bytes) -> None:
    """A slot that seems to be an id's and holds another does not mislead."""
    text = np.frombuffer(b"\xff" + other + b"\xfftwo\xff", np.uint8)
    start, key = np.array([1, len(other) + 2]), np.array([1, 2], np.uint64)
    given, ends = np.frombuffer(b"two\n", np.uint8), np.array([3])
    slots, room, handles = np.full(8, FREE, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int32)
    enter(key, slots, start, text, np.array([1], np.int32))
    (at,) = np.flatnonzero(slots != FREE).tolist()
    slots[at], slots[(at + 1) % 8] = slots[at] ^ 1, slots[at]
    find(0, 1, key, slots, start, text, given, ends, room, handles)
    assert handles.tolist() == [1]
    slots[(at + 1) % 8] = FREE
    find(0, 1, key, slots, start, text, given, ends, room, handles)
    assert handles.tolist() == [-1]
