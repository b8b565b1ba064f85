"""Random subscriptions and events for tests of matchers, rich in edge cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from roamcast.match.port import Events, Matches, Subscriptions

SubscriptionRow = tuple[float, float, float, float, Sequence[str] | None]
EventRow = tuple[float, float, Sequence[str] | None]

WORLD = (-math.inf, -math.inf, math.inf, math.inf)

# Few values, so that borders, corners and terms coincide; some of each size.
_COORDINATES = [-180.0, -170.5, -3.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0, 60.0, 179.0, 180.0]
_TERMS = ["a", "b", "c", "fire", "smoke", "a term of many characters", "é", ""]

_terms = st.none() | st.lists(st.sampled_from(_TERMS) | st.integers(0, 50).map(str), max_size=4)
_TINY = [-1e-17, -5e-324, 1e-17, 0.3 - 0.1 - 0.2]
_numbers = (
    st.sampled_from([*_COORDINATES, *_TINY])
    | st.builds(math.nextafter, st.sampled_from(_COORDINATES), st.sampled_from([-math.inf, math.inf]))
    | st.floats(-200, 200)
    | st.floats(allow_nan=False)
)


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


any_subscription: st.SearchStrategy[SubscriptionRow] = st.builds(lambda box, terms: (*box, terms), boxes(), _terms)
any_event: st.SearchStrategy[EventRow] = st.tuples(_numbers | st.just(math.nan), _numbers, _terms)


def dense_boxes(rng: np.random.Generator, count: int = 300) -> list[SubscriptionRow]:
    """Return boxes that are dense enough for the grid to have cells.

    They begin and end at and within borders of cells, one float beside, and just below 0.
    """
    unit = 2.0 ** rng.integers(-6, 3)

    def places() -> Any:
        places = _beside(rng, rng.integers(-12, 13, count) * unit / 4)
        return np.where(rng.random(count) < 0.1, rng.choice(_TINY, count), places)

    west, south = places(), places()
    east, north = (
        np.where(
            rng.random(count) < 0.1,
            np.maximum(low, places()),
            low + rng.choice(np.array([0, 1, 2, 4]) / 4, count) * unit,
        )
        for low in (west, south)
    )
    crosses = rng.random(count) < 0.05
    sides = np.where(crosses, east, west), south, np.where(crosses, west, east), north
    terms = [["a", "b"][: n % 3] for n in range(count)]
    return list(zip(*(side.tolist() for side in sides), terms, strict=True))


def border_points(rng: np.random.Generator, wanted: Sequence[SubscriptionRow], count: int = 30) -> list[EventRow]:
    """Return points on borders of these boxes, or one float beside."""
    boxes = np.array([subscription[:4] for subscription in wanted]).reshape(-1, 4)[rng.integers(0, len(wanted), count)]
    each = np.arange(count)
    x, y = (_beside(rng, boxes[each, side + 2 * rng.integers(0, 2, count)]) for side in (0, 1))
    return list(zip(x.tolist(), y.tolist(), [["a", "b"]] * count, strict=True))


def _beside(rng: np.random.Generator, values: Any) -> Any:
    away = rng.choice([-math.inf, math.inf], len(values))
    with np.errstate(over="ignore"):  # beside the largest float is infinity
        return np.where(rng.random(len(values)) < 0.3, np.nextafter(values, away), values)


def subscriptions_of(wanted: Sequence[SubscriptionRow]) -> Subscriptions:
    sides = (np.array([subscription[side] for subscription in wanted], np.float64) for side in range(4))
    return Subscriptions(*sides, _lists(subscription[4] for subscription in wanted))


def events_of(event_rows: Sequence[EventRow]) -> Events:
    x, y = (np.array([row[axis] for row in event_rows], np.float64) for axis in range(2))
    return Events(x, y, _lists(row[2] for row in event_rows))


def pairs(found: Matches) -> list[tuple[int, int]]:
    return list(zip(found.event.tolist(), found.subscription.tolist(), strict=True))


def _lists(values: Any) -> Any:
    return pa.array(list(values), pa.list_(pa.string()))
