"""Stacks of segments: adds, removals, merges, and what becomes of bad input."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matching import WORLD, Wish, events_of, pairs, subscriptions_of
from peaks import peak_of

from roamcast.errors import CorruptionError, InputError
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Events, Subscriptions

FIRE = events_of([(0, 0, ["fire"])])


def rows(first: int, wanted: list[Wish], residual: Any = None) -> Any:
    return index_rows(np.arange(first, first + len(wanted)), subscriptions_of(wanted), residual)


def many(first: int, count: int, term: str = "fire") -> Any:
    terms = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), pa.array([term] * count))
    sides = (np.full(count, side) for side in (-1.0, -1.0, 1.0, 1.0))
    return index_rows(np.arange(first, first + count), Subscriptions(*sides, terms))


def handles(layers: IndexStore, stack: tuple[SegmentRef, ...], events: Events = FIRE) -> list[int]:
    return [handle for _, handle in pairs(layers.open(stack).match(events))]


def test_handles_name_subscriptions_across_segments(tmp_path: Path) -> None:
    """Matches of all segments come together, ordered by handle."""
    layers = IndexStore(tmp_path)
    stack = layers.apply((), added=rows(10, [(*WORLD, ["fire"]), (*WORLD, ["smoke"])]))
    stack = layers.apply(stack, added=rows(5, [(*WORLD, []), (*WORLD, ["fire"])]))
    assert handles(layers, stack) == [5, 6, 10]
    assert handles(layers, layers.compact(stack)) == [5, 6, 10]


def test_removed_subscriptions_match_no_more(tmp_path: Path) -> None:
    """At once, and after merging; the segment itself is not rewritten."""
    layers = IndexStore(tmp_path)
    before = layers.apply((), added=many(0, 20))
    after = layers.apply(before, removed=[3, 19, 99])
    assert handles(layers, after) == [n for n in range(20) if n not in (3, 19)]
    assert after[0].segment == before[0].segment
    assert after[0].dead == 2
    assert layers.apply(after, removed=[3]) == after


def test_a_handle_may_come_back_in_the_same_change(tmp_path: Path) -> None:
    """What is gone goes first: this is how a region moves."""
    layers = IndexStore(tmp_path)
    stack = layers.apply((), added=rows(1, [(*WORLD, ["smoke"]), (*WORLD, ["fire"])]))
    stack = layers.apply(stack, removed=[1], added=rows(1, [(*WORLD, ["fire"])]))
    assert handles(layers, stack) == [1, 2]


def test_a_segment_of_dead_rows_only_is_left_out(tmp_path: Path) -> None:
    """Nothing of it is needed."""
    layers = IndexStore(tmp_path)
    assert layers.apply(layers.apply((), added=many(0, 5)), removed=range(5)) == ()


def test_a_segment_that_is_mostly_dead_is_rewritten(tmp_path: Path) -> None:
    """Its dead rows take room and time."""
    layers = IndexStore(tmp_path)
    stack = layers.compact(layers.apply(layers.apply((), added=many(0, 100)), removed=range(60)))
    assert [(layer.rows, layer.dead) for layer in stack] == [(40, 0)]


def test_a_stack_stays_logarithmic(tmp_path: Path) -> None:
    """After very many changes there are few segments, and what is large is seldom rewritten."""
    layers = IndexStore(tmp_path)
    stack: tuple[SegmentRef, ...] = ()
    rewritten = 0
    for first in range(0, 200_000, 2_000):
        before = stack
        stack = layers.compact(layers.apply(stack, added=many(first, 2_000)))
        rewritten += sum(layer.rows for layer in stack if layer not in before)
        assert len(stack) <= 4
    assert sum(layer.rows for layer in stack) == 200_000
    assert rewritten < 200_000 * 12
    assert handles(layers, stack) == list(range(200_000))


def test_what_is_small_is_one_segment(tmp_path: Path) -> None:
    """However many changes it came by."""
    layers = IndexStore(tmp_path)
    stack = layers.apply((), added=many(10_000, 5_000))
    for first in range(0, 60, 3):
        stack = layers.compact(layers.apply(stack, added=many(first, 3)))
    assert [layer.rows for layer in stack] == [5_000, 60]


def test_the_same_changes_make_the_same_stack(tmp_path: Path) -> None:
    """A batch that is repeated writes the same files."""
    stacks = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        layers = IndexStore(tmp_path / name)
        stack = layers.apply(layers.apply((), added=many(0, 50)), removed=[7], added=many(100, 30, "smoke"))
        stacks.append((stack, layers.compact(stack)))
    assert stacks[0] == stacks[1]


def test_a_missing_segment_is_never_a_wrong_result(tmp_path: Path) -> None:
    """Neither segment nor tombstones can be left out unnoticed."""
    layers = IndexStore(tmp_path)
    stack = layers.apply(layers.apply((), added=many(0, 9)), removed=[1])
    for name in (stack[0].segment, stack[0].tombstones):
        (path,) = tmp_path.glob(f"{name}.*")
        content = path.read_bytes()
        path.unlink()
        gc.collect()
        with pytest.raises(CorruptionError, match="missing"):
            layers.open(stack)
        path.write_bytes(content)
    assert len(handles(layers, stack)) == 8


def test_rows_with_a_further_condition_are_candidates(tmp_path: Path) -> None:
    """They are flagged, also after a merge, and decided by the exact test alone."""
    layers = IndexStore(tmp_path)
    stack = layers.apply((), added=rows(1, [(*WORLD, ["fire"])] * 3, np.array([True, False, True])))
    stack = layers.compact(layers.apply(stack, added=rows(4, [(*WORLD, ["fire"])])))
    assert len(stack) == 1
    assert next(layers.open(stack).candidates(FIRE)).residual.tolist() == [True, False, True, False]

    def exact(events: Events, event: Any, subscription: Any) -> Any:
        assert event.tolist() == [0, 0]
        return subscription == 3

    assert pairs(layers.open(stack, exact).match(FIRE)) == [(0, 2), (0, 3), (0, 4)]


def test_a_further_condition_is_never_passed_over(tmp_path: Path) -> None:
    """Without an exact test there is an error instead of a match that may be wrong."""
    layers = IndexStore(tmp_path)
    stack = layers.apply((), added=rows(1, [(*WORLD, ["fire"])], np.array([True])))
    with pytest.raises(InputError, match="condition"):
        layers.open(stack).match(FIRE)


def test_many_subscriptions_may_want_the_same(tmp_path: Path) -> None:
    """A hundred thousand on one cell and term all get the event, in order."""
    layers = IndexStore(tmp_path)
    stack = layers.apply((), added=many(0, 100_000))
    events = events_of([(0, 0, ["fire"]), (5, 5, ["fire"]), (0, 0, ["smoke"]), (1, 1, ["fire", "smoke"])])
    found = layers.open(stack).match(events)
    assert found.event.tolist() == [0] * 100_000 + [3] * 100_000
    assert found.subscription.tolist() == [*range(100_000)] * 2


def test_a_term_costs_its_bytes_and_a_little(tmp_path: Path) -> None:
    """Subscriptions to random terms cannot blow up the dictionary, and events bring no terms into it."""
    layers = IndexStore(tmp_path)
    terms = [f"{n:032x}" for n in range(20_000)]
    stack = layers.apply((), added=rows(0, [(0, 0, 1, 1, [term]) for term in terms]))
    before = layers.nbytes(stack)
    assert before / len(terms) < 32 + 36 + 100
    assert handles(layers, stack, events_of([(0, 0, [f"other-{n}" for n in range(1_000)] + terms[:3])])) == [0, 1, 2]
    assert layers.nbytes(stack) == before


def test_what_was_seen_of_events_chooses_the_term(tmp_path: Path) -> None:
    """A subscription is posted under the term that events have least often, whatever other subscriptions want."""
    layers = IndexStore(tmp_path)
    added = rows(0, [(*WORLD, ["common", "rare"]), (*WORLD, ["rare"]), (*WORLD, ["rare"])])

    def seen(texts: Any) -> Any:
        words = [bytes(texts.data[a:b]).decode() for a, b in zip(texts.start, texts.end, strict=True)]
        return np.array([100 if word == "common" else 0 for word in words])

    plain, weighed = layers.apply((), added=added), layers.apply((), added=added, frequency=seen)
    assert plain != weighed
    for stack in (plain, weighed):
        assert handles(layers, stack, events_of([(0, 0, ["rare", "common"])])) == [0, 1, 2]


def test_building_takes_little_more_than_the_terms(tmp_path: Path) -> None:
    """Two bytes for each byte of text, three where segments are merged, for the copies in memory and for the file."""
    count, length = 500, 4_000
    lots = [[(*WORLD, [f"{n:08}" * (length // 8)]) for n in range(f, f + count)] for f in (0, count)]
    layers = IndexStore(tmp_path)
    layers.compact(layers.apply(layers.apply((), added=rows(0, lots[0][:1])), added=rows(1, lots[1][:1])))  # compiles
    below, above = rows(0, lots[0]), rows(count, lots[1])
    stack, peak = peak_of(lambda: layers.apply((), added=below))
    assert peak < 2.5 * count * length
    stack = layers.apply(stack, added=above)
    merged, peak = peak_of(lambda: layers.compact(stack))
    assert len(merged) == 1
    assert peak < 3.5 * 2 * count * length
