"""Every matcher finds exactly the matches that the port defines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.index.lsm import build_index
from roamcast.match.port import Events, Matcher, Subscriptions

EventRow = tuple[float, float, Sequence[str] | None]
SubscriptionRow = tuple[float, float, float, float, Sequence[str] | None]
Match = Callable[[Sequence[EventRow], Sequence[SubscriptionRow]], list[tuple[int, int]]]


@pytest.fixture(params=[ReferenceMatcher, build_index])
def matcher(request: pytest.FixtureRequest) -> Callable[[Subscriptions], Matcher]:
    """The constructor of each matcher."""
    kind: Callable[[Subscriptions], Matcher] = request.param
    return kind


@pytest.fixture
def match(matcher: Callable[[Subscriptions], Matcher]) -> Match:
    """A function that matches plain rows and returns pairs of row numbers."""

    def numbers(values: Any) -> Any:
        return np.array(list(values), np.float64)

    def lists(values: Any) -> Any:
        return pa.array(list(values), pa.list_(pa.string()))

    def matched(events: Sequence[EventRow], subscriptions: Sequence[SubscriptionRow]) -> list[tuple[int, int]]:
        subscription_rows = Subscriptions(
            *(numbers(s[i] for s in subscriptions) for i in range(4)), lists(s[4] for s in subscriptions)
        )
        rows = Events(numbers(e[0] for e in events), numbers(e[1] for e in events), lists(e[2] for e in events))
        return list(zip(*(column.tolist() for column in matcher(subscription_rows).match(rows)), strict=True))

    return matched


WORLD = (-math.inf, -math.inf, math.inf, math.inf)


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [
        (0, 0, True), (2, 1, True), (0, 1, True), (1, 0.5, True),
        (math.nextafter(2, 3), 1, False), (math.nextafter(0, -1), 0, False), (1, 1.5, False), (1, -1, False),
    ],
)  # fmt: skip
def test_boxes_are_closed(match: Match, x: float, y: float, inside: bool) -> None:
    """A point on the border or a corner is inside; one float further it is not."""
    assert match([(x, y, [])], [(0, 0, 2, 1, [])]) == [(0, 0)] * inside


@pytest.mark.parametrize(("x", "inside"), [(170, True), (180, True), (-180, True), (-170, True), (0, False)])
def test_a_reversed_box_crosses_the_antimeridian(match: Match, x: float, inside: bool) -> None:
    """A box with min_x > max_x contains the longitudes on both sides of the antimeridian."""
    assert match([(x, 0, None)], [(170, -1, -170, 1, None)]) == [(0, 0)] * inside


def test_a_box_may_be_a_single_point(match: Match) -> None:
    assert match([(3, 4, []), (3, 5, [])], [(3, 4, 3, 4, [])]) == [(0, 0)]


def test_an_event_needs_all_terms_of_a_subscription(match: Match) -> None:
    events = [(0, 0, ["fire"]), (0, 0, ["smoke", "fire", "roof"]), (0, 0, None)]
    assert match(events, [(*WORLD, ["fire", "smoke"]), (*WORLD, ["fire"])]) == [(0, 1), (1, 0), (1, 1)]


def test_a_subscription_without_terms_matches_every_event(match: Match) -> None:
    """Null and empty lists are the same."""
    assert match([(0, 0, None), (1, 1, ["a"])], [(*WORLD, None), (*WORLD, [])]) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def test_duplicate_terms_count_once(match: Match) -> None:
    """In events and in subscriptions."""
    assert match([(0, 0, ["a", "a", "b"])], [(*WORLD, ["a", "a"]), (*WORLD, ["a", "c"])]) == [(0, 0)]


def test_terms_are_compared_exactly(match: Match) -> None:
    """Composed and decomposed letters, upper and lower case are different terms."""
    events = [(0, 0, ["caf\u00e9", "🔥", "'\";,"])]
    wanted = ["cafe\u0301", "CAFÉ", "caf\u00e9", "🔥", "'\";,"]
    assert match(events, [(*WORLD, [term]) for term in wanted]) == [(0, 2), (0, 3), (0, 4)]


@pytest.mark.parametrize("point", [(math.nan, 0), (0, math.nan), (math.nan, math.nan)])
def test_a_nan_point_matches_nothing(match: Match, point: tuple[float, float]) -> None:
    """Not even an unbounded box or one across the antimeridian."""
    assert match([(*point, ["a"])], [(*WORLD, ["a"]), (170, -90, -170, 90, [])]) == []


@pytest.mark.parametrize(("events", "subscriptions"), [(0, 0), (0, 2), (2, 0)])
def test_empty_inputs_give_no_matches(match: Match, events: int, subscriptions: int) -> None:
    assert match([(0, 0, ["a"])] * events, [(*WORLD, ["a"])] * subscriptions) == []


def test_rows_of_a_slice_are_numbered_from_its_start(matcher: Callable[[Subscriptions], Matcher]) -> None:
    """When the term lists are slices of larger arrays."""
    terms = pa.array([["x"], None, ["a"], ["b", "a"]], pa.list_(pa.string())).slice(1)
    subscription_rows = Subscriptions(*(np.array([v]) for v in WORLD), pa.array([["q"], ["a"]]).slice(1))
    found = matcher(subscription_rows).match(Events(np.zeros(3), np.zeros(3), terms))
    assert (found.event.tolist(), found.subscription.tolist()) == ([1, 2], [0, 0])


@pytest.mark.parametrize("far", [1e9, 1e300, 1.7e308])
def test_planar_coordinates_may_be_huge(match: Match, far: float) -> None:
    """Points, small boxes and huge boxes match exactly, however far from the origin."""
    beyond = math.nextafter(far, math.inf)
    subscription_rows = [(far, far, far, far, []), (-far, -far, far, far, []), (far / 2, far / 2, far, far, ["a"])]
    assert match([(far, far, ["a"]), (beyond, far, ["a"]), (0, 0, [])], subscription_rows) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (2, 1),
    ]


def test_adjacent_tiny_boxes_are_distinguished(match: Match) -> None:
    """Boxes one float wide contain only their own point, even where hundreds share a cell."""
    floats = [1.0]
    for _ in range(300):
        floats.append(math.nextafter(floats[-1], 2))
    subscription_rows = [(f, f, f, f, []) for f in floats]
    assert match([(f, f, []) for f in floats], subscription_rows) == [(n, n) for n in range(len(floats))]


@pytest.mark.parametrize("tiny", [0.3 - 0.1 - 0.2, -1e-17, -(2.0**-54), -5e-324])
def test_points_just_below_zero_match_exactly(match: Match, tiny: float) -> None:
    """Coordinates that vanish beside 1 are in the boxes around them and on their borders, in a dense cell."""
    sides = [-1 + n / 100 for n in range(64)]
    around, up_to = [(side, side, 0.3, 0.3, []) for side in sides], [(side, side, tiny, tiny, []) for side in sides]
    events = [(tiny, tiny, []), (tiny, -0.2, []), (-0.2, tiny, []), (0, 0, [])]
    inside = [(event, n) for event in range(4) for n in range(64)]
    assert match(events, around) == inside
    assert match(events, up_to) == inside[: 3 * 64]


@pytest.mark.parametrize("x", [-math.inf, math.inf])
def test_an_infinite_point_is_in_unbounded_boxes(match: Match, x: float) -> None:
    """Plain comparison decides."""
    assert match([(x, 0, [])], [(*WORLD, []), (-1, -1, 1, 1, []), (170, -1, -170, 1, [])]) == [(0, 0), (0, 2)]


def test_a_crossing_box_may_cover_nearly_all_longitudes(match: Match) -> None:
    """Each point in it matches once."""
    assert match([(x, 0, ["a"]) for x in (-15, -9, 179, -25)], [(-10, -1, -20, 1, ["a"])]) == [(1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize("box", [(math.nan, 0, 1, 1), (0, 0, 1, math.nan), (0, 1, 1, 0)])
def test_an_empty_box_matches_nothing(match: Match, box: tuple[float, float, float, float]) -> None:
    """NaN borders, or south above north."""
    assert match([(0.5, 0.5, [])], [(*box, [])]) == []


def test_an_event_may_have_ten_thousand_terms(match: Match) -> None:
    terms = [f"term-{n}" for n in range(10_000)]
    subscription_rows = [
        (*WORLD, terms),
        (*WORLD, ["term-9999", "term-0"]),
        (*WORLD, ["term-1", "absent"]),
        (0, 0, 1, 1, terms[:50]),
    ]
    assert match([(0, 0, terms), (0, 0, terms[:-1])], subscription_rows) == [(0, 0), (0, 1), (0, 3), (1, 3)]


def test_null_terms_are_ignored(match: Match) -> None:
    """In events and in subscriptions."""
    events: Any = [(0, 0, ["a", None]), (0, 0, [None])]
    subscription_rows: Any = [(*WORLD, ["a", None]), (*WORLD, [None])]
    assert match(events, subscription_rows) == [(0, 0), (0, 1), (1, 1)]


def test_long_terms_are_compared_to_the_end(match: Match) -> None:
    """Terms with a common prefix, of lengths around a machine word."""
    terms = ["x" * n + last for n in (0, 1, 6, 7, 8, 9, 15, 16, 17, 40) for last in ("a", "b")]
    assert match([(0, 0, [t]) for t in terms], [(*WORLD, [t]) for t in terms]) == [(n, n) for n in range(len(terms))]


@pytest.mark.parametrize("count", [31, 32, 33, 34])
def test_events_with_few_and_many_terms_match_alike(match: Match, count: int) -> None:
    """Around the number of terms from which they are not compared one by one."""
    terms = [f"term-{n}" for n in range(count)]
    subscription_rows = [(*WORLD, []), (*WORLD, [terms[-1], terms[0]]), (*WORLD, [*terms, "more"]), (*WORLD, terms)]
    events = [(0, 0, ["term-0"]), (0, 0, terms), (0, 0, [*terms[:-1], "more"]), (0, 0, [*terms, "more"])]
    expected = [(0, 0), (1, 0), (1, 1), (1, 3), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3)]
    assert match(events, subscription_rows) == expected
