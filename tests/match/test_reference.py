"""The reference matcher gives exactly the matches of the definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from roamcast.match.port import Events, Subscriptions
from roamcast.match.reference import ReferenceMatcher

Row = tuple[float, float, Sequence[str] | None]
Wish = tuple[float, float, float, float, Sequence[str] | None]


def match(events: Sequence[Row], subscriptions: Sequence[Wish]) -> list[tuple[int, int]]:
    def numbers(values: Any) -> Any:
        return np.array(list(values), np.float64)

    def lists(values: Any) -> Any:
        return pa.array(list(values), pa.list_(pa.string()))

    wishes = Subscriptions(
        *(numbers(s[i] for s in subscriptions) for i in range(4)), lists(s[4] for s in subscriptions)
    )
    rows = Events(numbers(e[0] for e in events), numbers(e[1] for e in events), lists(e[2] for e in events))
    return list(zip(*(column.tolist() for column in ReferenceMatcher(wishes).match(rows)), strict=True))


WORLD = (-math.inf, -math.inf, math.inf, math.inf)


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [
        (0, 0, True), (2, 1, True), (0, 1, True), (1, 0.5, True),
        (math.nextafter(2, 3), 1, False), (math.nextafter(0, -1), 0, False), (1, 1.5, False), (1, -1, False),
    ],
)  # fmt: skip
def test_borders_belong_to_the_box(x: float, y: float, inside: bool) -> None:
    """A point on the border or a corner is inside, one float beyond it is not."""
    assert match([(x, y, [])], [(0, 0, 2, 1, [])]) == [(0, 0)] * inside


@pytest.mark.parametrize(("x", "inside"), [(170, True), (180, True), (-180, True), (-170, True), (0, False)])
def test_a_reversed_box_crosses_the_antimeridian(x: float, inside: bool) -> None:
    """min_x > max_x holds the longitudes on both sides of the antimeridian."""
    assert match([(x, 0, None)], [(170, -1, -170, 1, None)]) == [(0, 0)] * inside


def test_a_box_of_no_area_holds_its_one_point() -> None:
    """A box may be a single point."""
    assert match([(3, 4, []), (3, 5, [])], [(3, 4, 3, 4, [])]) == [(0, 0)]


def test_all_terms_of_a_subscription_are_needed() -> None:
    """A subscription matches only events that carry each of its terms."""
    events = [(0, 0, ["fire"]), (0, 0, ["smoke", "fire", "roof"]), (0, 0, None)]
    assert match(events, [(*WORLD, ["fire", "smoke"]), (*WORLD, ["fire"])]) == [(0, 1), (1, 0), (1, 1)]


def test_no_terms_want_every_event() -> None:
    """An absent or empty list of terms asks for nothing."""
    assert match([(0, 0, None), (1, 1, ["a"])], [(*WORLD, None), (*WORLD, [])]) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def test_duplicate_terms_count_once() -> None:
    """Repeated terms change nothing on either side."""
    assert match([(0, 0, ["a", "a", "b"])], [(*WORLD, ["a", "a"]), (*WORLD, ["a", "c"])]) == [(0, 0)]


def test_terms_are_compared_character_by_character() -> None:
    """Composed and decomposed letters, and upper and lower case, are different terms."""
    events = [(0, 0, ["caf\u00e9", "🔥", "'\";,"])]
    wanted = ["cafe\u0301", "CAFÉ", "caf\u00e9", "🔥", "'\";,"]
    assert match(events, [(*WORLD, [term]) for term in wanted]) == [(0, 2), (0, 3), (0, 4)]


@pytest.mark.parametrize("point", [(math.nan, 0), (0, math.nan), (math.nan, math.nan)])
def test_a_point_that_is_not_a_number_matches_nothing(point: tuple[float, float]) -> None:
    """NaN lies in no box, not even in one without bounds or across the antimeridian."""
    assert match([(*point, ["a"])], [(*WORLD, ["a"]), (170, -90, -170, 90, [])]) == []


@pytest.mark.parametrize(("events", "subscriptions"), [(0, 0), (0, 2), (2, 0)])
def test_nothing_matches_nothing(events: int, subscriptions: int) -> None:
    """Empty inputs give empty matches."""
    assert match([(0, 0, ["a"])] * events, [(*WORLD, ["a"])] * subscriptions) == []


def test_a_slice_of_a_batch_keeps_its_own_rows() -> None:
    """Row numbers count from the slice's beginning when the term lists are a slice of larger arrays."""
    terms = pa.array([["x"], None, ["a"], ["b", "a"]], pa.list_(pa.string())).slice(1)
    wishes = Subscriptions(*(np.array([v]) for v in WORLD), pa.array([["q"], ["a"]]).slice(1))
    found = ReferenceMatcher(wishes).match(Events(np.zeros(3), np.zeros(3), terms))
    assert (found.event.tolist(), found.subscription.tolist()) == ([1, 2], [0, 0])
