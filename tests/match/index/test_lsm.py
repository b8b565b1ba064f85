"""Tests of roamcast.match.index.lsm: adding, removing, merging and corrupt files."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matching import WORLD, SubscriptionRow, events_of, pairs, subscriptions_of
from peaks import peak_of

from roamcast.errors import CorruptionError, InputError
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Events, Subscriptions

FIRE = events_of([(0, 0, ["fire"])])


def rows(first: int, wanted: list[SubscriptionRow], residual: Any = None) -> Any:
    return index_rows(np.arange(first, first + len(wanted)), subscriptions_of(wanted), residual)


def many(first: int, count: int, term: str = "fire") -> Any:
    terms = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), pa.array([term] * count))
    sides = (np.full(count, side) for side in (-1.0, -1.0, 1.0, 1.0))
    return index_rows(np.arange(first, first + count), Subscriptions(*sides, terms))


def handles(store: IndexStore, stack: tuple[SegmentRef, ...], events: Events = FIRE) -> list[int]:
    return [handle for _, handle in pairs(store.open(stack).match(events))]


def test_matches_of_all_segments_are_ordered_by_handle(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    stack = store.apply((), added=rows(10, [(*WORLD, ["fire"]), (*WORLD, ["smoke"])]))
    stack = store.apply(stack, added=rows(5, [(*WORLD, []), (*WORLD, ["fire"])]))
    assert handles(store, stack) == [5, 6, 10]
    assert handles(store, store.compact(stack)) == [5, 6, 10]


def test_removed_subscriptions_do_not_match(tmp_path: Path) -> None:
    """Neither at once nor after merging. The segment itself is not rewritten."""
    store = IndexStore(tmp_path)
    before = store.apply((), added=many(0, 20))
    after = store.apply(before, removed=[3, 19, 99])
    assert handles(store, after) == [n for n in range(20) if n not in (3, 19)]
    assert after[0].segment == before[0].segment
    assert after[0].dead == 2
    assert store.apply(after, removed=[3]) == after


def test_a_handle_can_be_removed_and_added_in_one_change(tmp_path: Path) -> None:
    """Removal comes first. This is how a region moves."""
    store = IndexStore(tmp_path)
    stack = store.apply((), added=rows(1, [(*WORLD, ["smoke"]), (*WORLD, ["fire"])]))
    stack = store.apply(stack, removed=[1], added=rows(1, [(*WORLD, ["fire"])]))
    assert handles(store, stack) == [1, 2]


def test_a_segment_without_live_rows_is_dropped(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    assert store.apply(store.apply((), added=many(0, 5)), removed=range(5)) == ()


def test_a_segment_that_is_mostly_dead_is_rewritten(tmp_path: Path) -> None:
    """Dead rows cost memory and time."""
    store = IndexStore(tmp_path)
    stack = store.compact(store.apply(store.apply((), added=many(0, 100)), removed=range(60)))
    assert [(ref.rows, ref.dead) for ref in stack] == [(40, 0)]


def test_the_number_of_segments_is_logarithmic(tmp_path: Path) -> None:
    """After many changes there are few segments, and large ones are seldom rewritten."""
    store = IndexStore(tmp_path)
    stack: tuple[SegmentRef, ...] = ()
    rewritten = 0
    for first in range(0, 200_000, 2_000):
        before = stack
        stack = store.compact(store.apply(stack, added=many(first, 2_000)))
        rewritten += sum(ref.rows for ref in stack if ref not in before)
        assert len(stack) <= 4
    assert sum(ref.rows for ref in stack) == 200_000
    assert rewritten < 200_000 * 12
    assert handles(store, stack) == list(range(200_000))


def test_small_segments_are_merged_into_one(tmp_path: Path) -> None:
    """However many changes they came by."""
    store = IndexStore(tmp_path)
    stack = store.apply((), added=many(10_000, 5_000))
    for first in range(0, 60, 3):
        stack = store.compact(store.apply(stack, added=many(first, 3)))
    assert [ref.rows for ref in stack] == [5_000, 60]


def test_the_same_changes_make_the_same_stack(tmp_path: Path) -> None:
    """A repeated batch writes the same files."""
    stacks = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        store = IndexStore(tmp_path / name)
        stack = store.apply(store.apply((), added=many(0, 50)), removed=[7], added=many(100, 30, "smoke"))
        stacks.append((stack, store.compact(stack)))
    assert stacks[0] == stacks[1]


def test_a_missing_file_raises_instead_of_losing_matches(tmp_path: Path) -> None:
    """Neither segments nor tombstones can be missing unnoticed."""
    store = IndexStore(tmp_path)
    stack = store.apply(store.apply((), added=many(0, 9)), removed=[1])
    for name in (stack[0].segment, stack[0].tombstones):
        (path,) = tmp_path.glob(f"{name}.*")
        content = path.read_bytes()
        path.unlink()
        gc.collect()
        with pytest.raises(CorruptionError, match="missing"):
            store.open(stack)
        path.write_bytes(content)
    assert len(handles(store, stack)) == 8


def test_residual_rows_are_decided_by_the_exact_test(tmp_path: Path) -> None:
    """They stay residual after a merge."""
    store = IndexStore(tmp_path)
    stack = store.apply((), added=rows(1, [(*WORLD, ["fire"])] * 3, np.array([True, False, True])))
    stack = store.compact(store.apply(stack, added=rows(4, [(*WORLD, ["fire"])])))
    assert len(stack) == 1
    assert next(store.open(stack).candidates(FIRE)).residual.tolist() == [True, False, True, False]

    def exact(events: Events, event: Any, subscription: Any) -> Any:
        assert event.tolist() == [0, 0]
        return subscription == 3

    assert pairs(store.open(stack, exact).match(FIRE)) == [(0, 2), (0, 3), (0, 4)]


def test_residual_rows_without_an_exact_test_raise(tmp_path: Path) -> None:
    """A match that may be wrong is an error."""
    store = IndexStore(tmp_path)
    stack = store.apply((), added=rows(1, [(*WORLD, ["fire"])], np.array([True])))
    with pytest.raises(InputError, match="condition"):
        store.open(stack).match(FIRE)


def test_many_subscriptions_with_the_same_cell_and_term_all_match(tmp_path: Path) -> None:
    """A hundred thousand of them, in order."""
    store = IndexStore(tmp_path)
    stack = store.apply((), added=many(0, 100_000))
    events = events_of([(0, 0, ["fire"]), (5, 5, ["fire"]), (0, 0, ["smoke"]), (1, 1, ["fire", "smoke"])])
    found = store.open(stack).match(events)
    assert found.event.tolist() == [0] * 100_000 + [3] * 100_000
    assert found.subscription.tolist() == [*range(100_000)] * 2


def test_a_term_costs_its_bytes_and_little_more(tmp_path: Path) -> None:
    """Random terms of subscriptions do not blow up the dictionary, and terms of events are not added to it."""
    store = IndexStore(tmp_path)
    terms = [f"{n:032x}" for n in range(20_000)]
    stack = store.apply((), added=rows(0, [(0, 0, 1, 1, [term]) for term in terms]))
    before = store.nbytes(stack)
    assert before / len(terms) < 32 + 36 + 100
    assert handles(store, stack, events_of([(0, 0, [f"other-{n}" for n in range(1_000)] + terms[:3])])) == [0, 1, 2]
    assert store.nbytes(stack) == before


def test_the_frequency_of_terms_decides_where_rows_are_posted(tmp_path: Path) -> None:
    """A subscription is posted under the term that is rarest in events. Matches stay the same."""
    store = IndexStore(tmp_path)
    added = rows(0, [(*WORLD, ["common", "rare"]), (*WORLD, ["rare"]), (*WORLD, ["rare"])])

    def seen(texts: Any) -> Any:
        words = [bytes(texts.data[a:b]).decode() for a, b in zip(texts.start, texts.end, strict=True)]
        return np.array([100 if word == "common" else 0 for word in words])

    plain, weighed = store.apply((), added=added), store.apply((), added=added, frequency=seen)
    assert plain != weighed
    for stack in (plain, weighed):
        assert handles(store, stack, events_of([(0, 0, ["rare", "common"])])) == [0, 1, 2]


def test_building_needs_little_more_memory_than_the_terms(tmp_path: Path) -> None:
    """Two bytes for each byte of text, three when segments are merged, for copies in memory and the file."""
    count, length = 500, 4_000
    lots = [[(*WORLD, [f"{n:08}" * (length // 8)]) for n in range(f, f + count)] for f in (0, count)]
    store = IndexStore(tmp_path)
    store.compact(store.apply(store.apply((), added=rows(0, lots[0][:1])), added=rows(1, lots[1][:1])))  # compiles
    below, above = rows(0, lots[0]), rows(count, lots[1])
    stack, peak = peak_of(lambda: store.apply((), added=below))
    assert peak < 2.5 * count * length
    stack = store.apply(stack, added=above)
    merged, peak = peak_of(lambda: store.compact(stack))
    assert len(merged) == 1
    assert peak < 3.5 * 2 * count * length
