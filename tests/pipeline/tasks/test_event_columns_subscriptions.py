"""Box, terms and the tests after them together accept exactly the events for which the query holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pytest
import shapely
from batches import control, placed
from hypothesis import given
from hypothesis import strategies as st
from lacl_queries import conditions
from profiles import thorough

from roamcast import model
from roamcast.errors import InputError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import EVENT, SUBSCRIPTION, Record, to_batch
from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.lacl import Query, check, holds, parse
from roamcast.lacl.syntax import (
    And,
    BoxRegion,
    Circle,
    Compare,
    Condition,
    Has,
    In,
    Inside,
    Number,
    Region,
    Select,
    Text,
    Variable,
    Within,
)
from roamcast.match.port import Events, Subscriptions
from roamcast.pipeline.state.changes import apply_records
from roamcast.pipeline.state.control import SubscriptionSpec
from roamcast.pipeline.state.state_rows import StateRows
from roamcast.pipeline.tasks.event_columns import EventColumns, satisfy_subscriptions
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC, PLANAR, Space, contains

SHAPES = {
    "triangle": shapely.Polygon([(0, 0), (4, 0), (0, 4)]),
    "ring": shapely.Polygon([(-4, -4), (4, -4), (4, 4), (-4, 4)], [[(-1, -1), (1, -1), (1, 1), (-1, 1)]]),
    "fiji": shapely.MultiPolygon([shapely.box(177, -4, 180, 4), shapely.box(-180, -4, -178, 2)]),
}
PLACES = {space.name: Places(SHAPES, space) for space in (GEOGRAPHIC, PLANAR)}


class EventValues(NamedTuple):
    """The parts of an event that a query can test."""

    x: float = 0.0
    y: float = 0.0
    terms: Sequence[str] | None = ()
    readings: Mapping[str, float] | None = None
    attributes: Mapping[str, Any] | None = None

    def record(self) -> Record:
        body = None if self.attributes is None else orjson.dumps(self.attributes).decode()
        return Record(EVENT, "cam", 1, "cam:1", 0, self.x, self.y, self.terms, self.readings, body)


def subscriptions(queries: Sequence[Query], space: Space) -> pa.Table:
    """Queries as rows of the state."""
    bodies = [SubscriptionBody.of(query, PLACES[space.name], space).to_json() for query in queries]
    records = [Record(SUBSCRIPTION, "ann", time=0, id=f"s{number}", body=body) for number, body in enumerate(bodies)]
    changes = apply_records(control(placed(records)).records, 0, StateRows.empty())
    assert changes.dead_letters == []
    return changes.subscriptions


def accepted(queries: Sequence[Query], events: Sequence[EventValues], space: Space = PLANAR) -> set[tuple[int, int]]:
    """Pairs (query, event): found by box and terms, then tested."""
    rows = subscriptions(queries, space)
    batch = to_batch("local", 1, [event.record() for event in events])
    sides = (rows[side].to_numpy() for side in ("min_x", "min_y", "max_x", "max_y"))
    terms = rows["terms"].combine_chunks() if rows.num_rows else pa.array([], pa.list_(pa.string()))
    candidates = ReferenceMatcher(Subscriptions(*sides, terms)).match(
        Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"])
    )
    good = satisfy_subscriptions(EventColumns(batch), candidates.event, rows, candidates.subscription)
    return set(zip(candidates.subscription[good].tolist(), candidates.event[good].tolist(), strict=True))


def satisfies(query: Query, event: EventValues, space: Space) -> bool:
    """Evaluate the query for one event with the reference semantics."""

    def inside(region: Region) -> bool:
        match region:
            case BoxRegion(box):
                return bool(contains(*box, event.x, event.y))
            case Circle(x, y, radius):
                return bool(space.distance(x, y, event.x, event.y) <= radius)
            case Within(place):
                return bool(shapely.intersects_xy(SHAPES[place], event.x, event.y))
        raise AssertionError(region)

    attributes = event.attributes or {}
    context = attributes.get("context")
    return holds(query.where, attributes, terms=frozenset(event.terms or ()), inside=inside) and (
        query.on is None or holds(query.on, event.readings or {}, context=context)
    )


def accept(text: str, *events: EventValues, space: Space = PLANAR) -> list[bool]:
    """Which events a query accepts."""
    query = check(parse(text), places=PLACES[space.name], space=space)
    pairs = accepted([query], events, space)
    return [(0, number) in pairs for number in range(len(events))]


def test_a_circle_is_round() -> None:
    """The border is inside, the corners of its bounding box are not."""
    events = [EventValues(3, 4), EventValues(5, 0), EventValues(5, 5), EventValues(4, 4)]
    assert accept("Select all() Where &location in circle(0, 0, 5)", *events) == [True, True, False, False]


def test_a_circle_is_measured_in_its_space() -> None:
    """In geographic space the radius is in metres, and a circle may cross the antimeridian."""
    text = "Select all() Where &location in circle(180, 0, 120000)"
    events = [
        EventValues(179, 0),
        EventValues(-179, 0),
        EventValues(-180, 1),
        EventValues(-178.9, 0),
        EventValues(179, 1),
    ]
    assert accept(text, *events, space=GEOGRAPHIC) == [True, True, True, False, False]


@pytest.mark.parametrize("space", [GEOGRAPHIC, PLANAR])
def test_a_place_is_tested_by_its_polygon(space: Space) -> None:
    """The border is inside; holes and the corners of its bounding box are not."""
    triangle = [EventValues(1, 1), EventValues(2, 2), EventValues(3, 3), EventValues(0, 4)]
    assert accept('Select all() Where &location in within("triangle")', *triangle, space=space) == [
        True, True, False, True,
    ]  # fmt: skip
    ring = [EventValues(0, 0), EventValues(1, 0), EventValues(2, 0), EventValues(5, 0)]
    assert accept('Select all() Where &location in within("ring")', *ring, space=space) == [False, True, True, False]


def test_a_place_across_the_antimeridian_is_found() -> None:
    """Both parts match, and nothing between them."""
    events = [EventValues(178, 3), EventValues(-179, 1), EventValues(-179, 3), EventValues(0, 0)]
    text = 'Select all() Where &location in within("fiji")'
    assert accept(text, *events, space=GEOGRAPHIC) == [True, True, False, False]


def test_terms_below_or_and_not_are_tested() -> None:
    """All events are candidates if no term is required."""
    text = 'Select all() Where (&terms has ("fire") or &terms has ("smoke")) and not &terms has ("drill")'
    events = [EventValues(terms=terms) for terms in (["fire"], ["smoke"], ["fire", "drill"], ["ice"], None)]
    assert accept(text, *events) == [True, True, False, False, False]


def test_attributes_of_the_source_are_tested() -> None:
    """As they were when the event was accepted; an unreadable body has none."""
    text = "Select all() Where &location in box(-1, -1, 1, 1) and &owner = bob"
    events = [EventValues(attributes=a) for a in ({"owner": "bob"}, {"owner": "eve"}, None)]
    assert accept(text, *events) == [True, False, False]
    rows = subscriptions([parse(text)], PLANAR)
    batch = to_batch("local", 1, [EventValues().record()._replace(body="{no")])
    assert satisfy_subscriptions(EventColumns(batch), np.array([0]), rows, np.array([0])).tolist() == [False]


def test_readings_are_tested() -> None:
    """Named readings, and plain ones by the context of the source; a missing one satisfies nothing."""
    box = "Select all() Where &location in box(-1, -1, 1, 1)"
    level = {"context": "level"}
    events = [
        EventValues(readings={"level": 5}, attributes=level),
        EventValues(readings={"level": 5}),
        EventValues(readings={"level": 0}, attributes=level),
        EventValues(readings=None, attributes=level),
    ]
    assert accept(f"{box} On @ > 1", *events) == [True, False, False, False]
    assert accept(f"{box} On @level > 1", *events) == [True, True, False, False]
    assert accept(f"{box} On not @ > 1", *events) == [False, True, True, True]


def test_subscriptions_with_box_and_terms_only_pass() -> None:
    """Together with subscriptions that have more tests, and without any pair."""
    texts = ["&location in box(0, 0, 1, 1)", "&location in circle(0, 0, 1)", '&terms has ("fire")']
    queries = [parse(f"Select all() Where {text}") for text in texts]
    assert accepted(queries, [EventValues(1, 1, ["fire"]), EventValues(9, 9)]) == {(0, 0), (2, 0)}
    assert accepted(queries, []) == set()
    assert accepted([], [EventValues()]) == set()


@pytest.mark.parametrize(
    "area",
    ["", "{}", '{"type":"Polygon","coordinates":[[[0,0],[1,1]]]}', '{"type":"Polygon","coordinates":"all"}'],
)
def test_an_unreadable_area_is_refused(area: str) -> None:
    """When the subscription is created, before any event is tested."""
    with pytest.raises(InputError):
        SubscriptionSpec.from_body(SubscriptionBody(None, (), place="p", area=area, space="planar").to_json())


def test_a_place_without_an_area_is_refused() -> None:
    """It could not be tested."""
    with pytest.raises(InputError, match="area"):
        SubscriptionSpec.from_body(SubscriptionBody(None, (), place="p", space="planar").to_json())


_values = st.sampled_from([-1.0, 0.0, 1.0, 2.0])
_names = st.sampled_from(["a", "b"])
_attribute = st.builds(Variable, st.just("&"), _names)
_reading = st.builds(Variable, st.just("@"), _names | st.none())
_has = st.lists(st.sampled_from("xyz").map(Text), min_size=1, max_size=2).map(
    lambda terms: Has(Variable("&", "terms"), tuple(terms))
)
_number = st.builds(Number, _values)
_order = st.sampled_from(["<", ">=", "!="])
_on_source = conditions(
    _has | st.builds(Compare, _attribute, _order, _number) | st.builds(In, _attribute, st.just((Text("x"), Text("y"))))
)
_on_reading = st.none() | conditions(st.builds(Compare, _reading, _order, _number))
_places = st.builds(Within, st.sampled_from(sorted(SHAPES)))
_near = st.sampled_from([-2.0, 0.0, 1.0, 3.0])
_regions = {
    "planar": _places
    | st.builds(Circle, _near, _near, st.sampled_from([0.0, 1.0, 2.5, 5.0]))
    | st.just(BoxRegion(model.Box(-2, -2, 1, 3))),
    "geographic": _places
    | st.builds(Circle, st.sampled_from([0.0, 2.0, 179.0, 180.0, -180.0]), _near, st.sampled_from([0.0, 1e5, 3e5, 2e7]))
    | st.builds(Circle, st.just(10.0), st.sampled_from([89.0, -90.0]), st.just(3e5))
    | st.sampled_from([BoxRegion(model.Box(-2, -2, 1, 3)), BoxRegion(model.Box(178, -2, -179, 3))]),
}
_small = st.tuples(st.integers(-3, 4).map(float), st.integers(-3, 4).map(float))
_coordinates = {
    "planar": _small,
    "geographic": _small
    | st.tuples(
        st.sampled_from([176.5, 178.0, 179.0, 180.0, -180.0, -179.0, -178.0]), st.sampled_from([-3.0, 0.0, 3.0])
    )
    | st.tuples(st.sampled_from([-170.0, 10.0, 180.0]), st.sampled_from([-90.0, -89.0, 88.0, 90.0])),
}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Space, list[Query], list[EventValues]]:
    space = draw(st.sampled_from([GEOGRAPHIC, PLANAR]))
    queries = []
    for _ in range(draw(st.integers(1, 4))):
        region = draw(st.none() | _regions[space.name])
        parts: list[Condition] = draw(st.just([]) | st.lists(_on_source, max_size=2))
        parts.append(draw(_has) if region is None else Inside(Variable("&", "location"), region))
        where = And(tuple(draw(st.permutations(parts)))) if len(parts) > 1 else parts[0]
        queries.append(check(Query(Select("all"), where, draw(_on_reading)), space=space))
    attributes = st.dictionaries(_names, st.sampled_from([0, 1, 2.0, "x", True])) | st.none()
    events = []
    for _ in range(draw(st.integers(3, 8))):
        x, y = draw(_coordinates[space.name])
        values = draw(attributes)
        if values is not None and (context := draw(st.none() | _names)) is not None:
            values = {**values, "context": context}
        terms = draw(st.none() | st.lists(st.sampled_from("xyz"), max_size=3))
        events.append(EventValues(x, y, terms, draw(st.none() | st.dictionaries(_names, _values)), values))
    return space, queries, events


@thorough()
@given(world=worlds())
def test_accepted_events_equal_the_reference(world: tuple[Space, list[Query], list[EventValues]]) -> None:
    """For random queries with all kinds of regions, terms, attributes and readings."""
    space, queries, events = world
    expected = {
        (q, e) for q, query in enumerate(queries) for e, event in enumerate(events) if satisfies(query, event, space)
    }
    assert accepted(queries, events, space) == expected
