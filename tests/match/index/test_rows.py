"""Tests of roamcast.match.index.rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matching import WORLD, events_of, subscriptions_of

from roamcast.match.index.rows import (
    IndexRows,
    concatenate_rows,
    distinct,
    gather_ragged,
    index_rows,
    sample_evenly,
    select_events,
    select_rows,
)


def rows(first: int, *terms: list[str]) -> IndexRows:
    return index_rows(np.arange(first, first + len(terms)), subscriptions_of([(*WORLD, each) for each in terms]))


def terms_of(some: IndexRows) -> list[list[str]]:
    texts = some.terms.texts
    words = [bytes(texts.data[a:b]).decode() for a, b in zip(texts.start, texts.end, strict=True)]
    first = some.terms.first.tolist()
    return [[words[c] for c in some.terms.code[a:b]] for a, b in pairwise(first)]


def test_selected_rows_keep_their_terms() -> None:
    selected = select_rows(rows(5, ["a"], [], ["b", "a"]), np.array([2, 0]))
    assert selected.handle.tolist() == [7, 5]
    assert terms_of(selected) == [["b", "a"], ["a"]]


def test_concatenated_rows_share_equal_terms() -> None:
    both = concatenate_rows(rows(0, ["a"], ["b"]), rows(9, ["b", "c"], []))
    assert both.handle.tolist() == [0, 1, 9, 10]
    assert terms_of(both) == [["a"], ["b"], ["b", "c"], []]
    assert len(both.terms.texts.start) == 3


def test_selected_events_keep_their_terms() -> None:
    events = select_events(events_of([(0, 1, ["a"]), (2, 3, None), (4, 5, ["b"])]), np.array([2, 1]))
    assert (events.x.tolist(), events.y.tolist(), events.terms.to_pylist()) == ([4, 2], [5, 3], [["b"], None])


def test_gathered_lists_may_repeat_and_be_empty() -> None:
    offsets, at = gather_ragged(np.array([0, 3, 3]), np.array([3, 0, 2]), np.array([2, 1, 0, 2]))
    assert offsets.tolist() == [0, 2, 2, 5, 7]
    assert at.tolist() == [3, 4, 0, 1, 2, 3, 4]


def test_a_sample_is_everything_or_evenly_spaced() -> None:
    assert sample_evenly(3, 5).tolist() == [0, 1, 2]
    assert sample_evenly(9, 3).tolist() == [0, 4, 8]


def test_distinct_values_are_those_of_numpy() -> None:
    """In the same order."""
    for values in ([], [5], [3, -1, 3, 7, -1, 0, -(2**40)]):
        assert distinct(np.array(values, np.int64)).tolist() == np.unique(np.array(values, np.int64)).tolist()
