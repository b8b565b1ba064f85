"""Random subscriptions and events for matchers, with what tends to go wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from roamcast.match.port import Events, Matches, Subscriptions

Wish = tuple[float, float, float, float, Sequence[str] | None]
Row = tuple[float, float, Sequence[str] | None]

WORLD = (-math.inf, -math.inf, math.inf, math.inf)

# Few values, so that borders, corners and terms are met; some of each size.
_PLACES = [-180.0, -170.5, -3.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0, 60.0, 179.0, 180.0]
_TERMS = ["a", "b", "c", "fire", "smoke", "a term of many characters", "é", ""]

_terms = st.none() | st.lists(st.sampled_from(_TERMS) | st.integers(0, 50).map(str), max_size=4)
_numbers = st.sampled_from(_PLACES) | st.floats(-200, 200) | st.floats(allow_nan=False)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[float, float, float, float]:
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return WORLD
    x, y = draw(_numbers), draw(_numbers)
    if kind < 6:
        width, height = (draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0, 30.0, 400.0])) for _ in range(2))
        return x, y, x + width, y + height
    south, north = sorted([y, draw(_numbers)])
    return x, south, draw(_numbers), north


wishes: st.SearchStrategy[Wish] = st.builds(lambda box, terms: (*box, terms), boxes(), _terms)
rows: st.SearchStrategy[Row] = st.tuples(_numbers | st.just(math.nan), _numbers, _terms)


def subscriptions_of(wanted: Sequence[Wish]) -> Subscriptions:
    sides = (np.array([wish[side] for wish in wanted], np.float64) for side in range(4))
    return Subscriptions(*sides, _lists(wish[4] for wish in wanted))


def events_of(happened: Sequence[Row]) -> Events:
    x, y = (np.array([row[axis] for row in happened], np.float64) for axis in range(2))
    return Events(x, y, _lists(row[2] for row in happened))


def pairs(found: Matches) -> list[tuple[int, int]]:
    return list(zip(found.event.tolist(), found.subscription.tolist(), strict=True))


def _lists(values: Any) -> Any:
    return pa.array(list(values), pa.list_(pa.string()))
