"""Plan match, the last step in the executors: what box and terms found is tested against the whole query."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from roamcast.errors import InputError
from roamcast.lacl import parse
from roamcast.lacl.conditions import Truths
from roamcast.lacl.syntax import Circle, Within
from roamcast.pipeline.facts import Facts
from roamcast.pipeline.layers import Integers
from roamcast.space import SPACES, Space

__all__ = ["passes", "tests_of"]

Test: TypeAlias = Callable[[Facts, Integers], Truths]


def passes(facts: Facts, events: Integers, subscriptions: pa.Table, rows: Integers) -> Truths:
    """Whether each event passes what the subscription beside it asks beyond box and terms."""
    truths = np.ones(len(events), np.bool_)
    pairs = np.flatnonzero(pc.is_valid(subscriptions["query"]).to_numpy()[rows])
    if not len(pairs):
        return truths
    asked = subscriptions.select(["query", "area", "space"])
    asked, alike = _distinct(asked, rows[pairs])
    order = pairs[np.argsort(alike, kind="stable")]
    starts = np.flatnonzero(np.diff(np.sort(alike), prepend=-1))
    for same, ask in zip(np.split(order, starts[1:]), asked.to_pylist(), strict=True):
        truths[same] = False
        for test in tests_of(**ask):
            same = same[test(facts, events[same])]
        truths[same] = True
    return truths


def _distinct(asked: pa.Table, rows: Integers) -> tuple[pa.Table, Integers]:
    """What is asked by these rows, each once; and for each row the number of what it asks."""
    used, place = np.unique(rows, return_inverse=True)
    asked = asked.take(pa.array(used))
    codes = np.zeros(len(used), np.int64)
    for column in asked.columns:
        encoded = column.combine_chunks().dictionary_encode()
        codes = codes * (len(encoded.dictionary) + 1) + pc.fill_null(encoded.indices, -1).to_numpy() + 1
    _, first, number = np.unique(codes, return_index=True, return_inverse=True)
    return asked.take(pa.array(first)), number[place]


@lru_cache(maxsize=100_000)
def tests_of(query: str, area: str | None, space: str) -> tuple[Test, ...]:
    """What is tested of an event after box and terms, the cheapest first. Raises InputError for what cannot be."""
    parsed = parse(query)
    tests: list[Test] = []
    match parsed.location:
        case Circle(x, y, radius):
            tests.append(_in_circle(SPACES[space], x, y, radius))
        case Within():
            tests.append(_in_area(area))
    if (on := parsed.on) is not None:
        tests.append(lambda facts, rows: facts.satisfy(on, rows))
    if (expression := parsed.source_expression) is not None:
        tests.append(lambda facts, rows: facts.come_from(expression, rows))
    return tuple(tests)


def _in_circle(space: Space, x: float, y: float, radius: float) -> Test:
    def test(facts: Facts, rows: Integers) -> Truths:
        there = (facts.events[name].to_numpy()[rows] for name in ("x", "y"))
        return np.asarray(space.distance(x, y, *there) <= radius)

    return test


def _in_area(geojson: str | None) -> Test:
    try:
        area = shapely.from_geojson(geojson)
    except shapely.GEOSException as error:
        raise InputError(f"the area of a place is unreadable: {error}") from error
    if area is None:
        raise InputError("a place without its area")
    shapely.prepare(area)

    def test(facts: Facts, rows: Integers) -> Truths:
        x, y = (facts.events[name].to_numpy()[rows] for name in ("x", "y"))
        inside: Truths = shapely.intersects_xy(area, x, y)
        return inside

    return test
