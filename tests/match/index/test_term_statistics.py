"""Tests of roamcast.match.index.term_statistics."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
from matching import WORLD, events_of, pairs, subscriptions_of

from roamcast.match.index.dictionary import encode_terms
from roamcast.match.index.lsm import IndexStore
from roamcast.match.index.rows import index_rows
from roamcast.match.index.term_statistics import TermStatistics


def lists(rows: list[list[str] | None]) -> pa.ListArray:
    return pa.array(rows, pa.list_(pa.string()))


def seen(counts: TermStatistics, *terms: str) -> list[int]:
    return counts(encode_terms(lists([list(terms)])).texts).tolist()


def test_a_term_counts_once_for_each_event() -> None:
    counts = TermStatistics()
    counts.observe(lists([["a", "b"], ["a", "a"], None, ["a"]]))
    assert seen(counts, "a", "b", "c") == [3, 1, 0]


def test_many_terms_need_no_more_memory_and_hardly_change_estimates() -> None:
    """An attack with random terms leaves common terms common and rare ones rare."""
    counts = TermStatistics()
    before = len(pickle.dumps(counts))
    counts.observe(lists([["common"]] * 5_000 + [["rare"]]))
    counts.observe(lists([[f"random-{n}" for n in range(start, start + 1_000)] for start in range(0, 60_000, 1_000)]))
    common, rare = seen(counts, "common", "rare")
    assert 5_000 <= common < 5_020
    assert 1 <= rare < 20
    assert len(pickle.dumps(counts)) == before


def test_statistics_save_work_and_change_no_match(tmp_path: Path) -> None:
    """Fewer postings are scanned for an event with a common term."""
    counts = TermStatistics()
    counts.observe(lists([["common"]] * 1_000 + [["rare"]]))
    wanted = subscriptions_of([(*WORLD, ["rare", "common"])] * 100 + [(*WORLD, ["rare"])] * 50)
    store = IndexStore(tmp_path)
    rows = index_rows(np.arange(150), wanted)
    plain, weighed = (store.open(store.apply((), added=rows, frequency=s)) for s in (None, counts))
    events = events_of([(0, 0, ["common"])] * 10 + [(0, 0, ["common", "rare"])])
    assert pairs(plain.match(events)) == pairs(weighed.match(events))
    assert next(weighed.candidates(events)).scanned < next(plain.candidates(events)).scanned
