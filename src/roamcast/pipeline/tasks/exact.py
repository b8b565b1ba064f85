"""Plan match, the last step in the executors: what box and terms found is tested for all else that is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from roamcast.lacl.columns import BoolArray
from roamcast.pipeline.state.lookups import Integers
from roamcast.pipeline.tasks.event_columns import Facts, area_of, on_of, source_of
from roamcast.space import SPACES

__all__ = ["passes"]

Test: TypeAlias = Callable[[Facts, str, Integers], BoolArray]


def passes(facts: Facts, events: Integers, subscriptions: pa.Table, rows: Integers) -> BoolArray:
    """Whether each event passes what the subscription beside it asks beyond box and terms.

    Of `subscriptions` each thing that is asked is looked at once, however many ask for it; the cheapest comes first.
    """
    kept = _in_circles(facts, events, subscriptions, rows)
    for column, test in _TESTS:
        kept = kept[_tested(facts, events[kept], subscriptions[column], rows[kept], test)]
    truths = np.zeros(len(events), np.bool_)
    truths[kept] = True
    return truths


def _in_circles(facts: Facts, events: Integers, subscriptions: pa.Table, rows: Integers) -> Integers:
    """The numbers of the pairs whose event is in the subscription's circle, if that has one."""
    given = pc.is_valid(subscriptions["circle"]).to_numpy()
    inside = np.ones(len(rows), np.bool_)
    pairs = np.flatnonzero(given[rows])
    if len(pairs):
        circles = pc.list_flatten(subscriptions["circle"]).to_numpy().reshape(-1, 3)
        circle = circles[np.cumsum(given)[rows[pairs]] - 1]
        at = np.stack([facts.events[name].to_numpy()[events[pairs]] for name in ("x", "y")])
        for space, some in _alike(subscriptions["space"], rows[pairs]):
            away = SPACES[space].distance(circle[some, 0], circle[some, 1], *at[:, some])
            inside[pairs[some]] = away <= circle[some, 2]
    return np.flatnonzero(inside)


def _tested(facts: Facts, events: Integers, column: pa.ChunkedArray, rows: Integers, test: Test) -> BoolArray:
    """Whether each event passes what the column has for the row beside it; nothing is always passed."""
    truths = np.ones(len(rows), np.bool_)
    if column.null_count < len(column):
        for text, pairs in _alike(column, rows):
            truths[pairs] = test(facts, text, events[pairs])
    return truths


def _alike(column: pa.ChunkedArray, rows: Integers) -> list[tuple[str, Integers]]:
    """Each text of the column that these rows have, with the numbers of the rows that have it."""
    encoded = column.combine_chunks().dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy()[rows]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-2))
    groups = np.split(order, starts[1:]) if len(order) else []
    return [(encoded.dictionary[int(codes[g[0]])].as_py(), g) for g in groups if codes[g[0]] >= 0]


def _in_area(facts: Facts, geojson: str, rows: Integers) -> BoolArray:
    x, y = (facts.events[name].to_numpy()[rows] for name in ("x", "y"))
    inside: BoolArray = shapely.intersects_xy(area_of(geojson), x, y)
    return inside


_TESTS: tuple[tuple[str, Test], ...] = (
    ("area", _in_area),
    ("on", lambda facts, text, rows: facts.satisfy(on_of(text), rows)),
    ("source", lambda facts, text, rows: facts.come_from(source_of(text), rows)),
)
