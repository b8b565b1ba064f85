"""The exact test: with box and terms before it, it takes the events that the whole query holds of, and no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from lacl_queries import conditions
from profiles import thorough
from pure import control, placed

from roamcast import model
from roamcast.errors import InputError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import EVENT, SUBSCRIPTION, Record, to_batch
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
from roamcast.match.reference import ReferenceMatcher
from roamcast.pipeline.state.control import Nothing, changes_of
from roamcast.pipeline.state.subscription_spec import asked_of
from roamcast.pipeline.tasks import exact
from roamcast.pipeline.tasks.event_columns import Facts
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC, PLANAR, Space, contains

SHAPES = {
    "triangle": shapely.Polygon([(0, 0), (4, 0), (0, 4)]),
    "ring": shapely.Polygon([(-4, -4), (4, -4), (4, 4), (-4, 4)], [[(-1, -1), (1, -1), (1, 1), (-1, 1)]]),
    "fiji": shapely.MultiPolygon([shapely.box(177, -4, 180, 4), shapely.box(-180, -4, -178, 2)]),
}
PLACES = {space.name: Places(SHAPES, space) for space in (GEOGRAPHIC, PLANAR)}


class Happening(NamedTuple):
    """An event, as far as a query can ask of it."""

    x: float = 0.0
    y: float = 0.0
    terms: Sequence[str] | None = ()
    readings: Mapping[str, float] | None = None
    attributes: Mapping[str, Any] | None = None

    def record(self) -> Record:
        body = None if self.attributes is None else orjson.dumps(self.attributes).decode()
        return Record(EVENT, "cam", 1, "cam:1", 0, self.x, self.y, self.terms, self.readings, body)


def subscriptions(queries: Sequence[Query], space: Space) -> pa.Table:
    """As rows of the state."""
    bodies = [SubscriptionBody.of(query, PLACES[space.name], space).to_json() for query in queries]
    records = [Record(SUBSCRIPTION, "ann", time=0, id=f"s{number}", body=body) for number, body in enumerate(bodies)]
    changes = changes_of(control(placed(records)).records, 0, Nothing())
    assert changes.set_aside == []
    return changes.subscriptions


def taken(queries: Sequence[Query], events: Sequence[Happening], space: Space = PLANAR) -> set[tuple[int, int]]:
    """Pairs of numbers, of query and of event: found by box and terms, then tested."""
    rows = subscriptions(queries, space)
    batch = to_batch("local", 1, [event.record() for event in events])
    sides = (rows[side].to_numpy() for side in ("min_x", "min_y", "max_x", "max_y"))
    terms = rows["terms"].combine_chunks() if rows.num_rows else pa.array([], pa.list_(pa.string()))
    found = ReferenceMatcher(Subscriptions(*sides, terms)).match(
        Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"])
    )
    good = exact.passes(Facts(batch), found.event, rows, found.subscription)
    return set(zip(found.subscription[good].tolist(), found.event[good].tolist(), strict=True))


def wanted(query: Query, event: Happening, space: Space) -> bool:
    """What the language says of one event, directly."""

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


def ask(text: str, *events: Happening, space: Space = PLANAR) -> list[bool]:
    """Which events one query takes."""
    query = check(parse(text), places=PLACES[space.name], space=space)
    pairs = taken([query], events, space)
    return [(0, number) in pairs for number in range(len(events))]


def test_a_circle_is_round() -> None:
    """Its border belongs to it; the corners of its box do not."""
    events = [Happening(3, 4), Happening(5, 0), Happening(5, 5), Happening(4, 4)]
    assert ask("Select all() Where &location in circle(0, 0, 5)", *events) == [True, True, False, False]


def test_a_circle_is_one_in_its_space() -> None:
    """In geographic space its radius is in metres, and it goes across the antimeridian."""
    text = "Select all() Where &location in circle(180, 0, 120000)"
    events = [Happening(179, 0), Happening(-179, 0), Happening(-180, 1), Happening(-178.9, 0), Happening(179, 1)]
    assert ask(text, *events, space=GEOGRAPHIC) == [True, True, True, False, False]


@pytest.mark.parametrize("space", [GEOGRAPHIC, PLANAR])
def test_a_place_is_its_polygon(space: Space) -> None:
    """Its border belongs to it; its holes, and the corners of its box, do not."""
    triangle = [Happening(1, 1), Happening(2, 2), Happening(3, 3), Happening(0, 4)]
    assert ask('Select all() Where &location in within("triangle")', *triangle, space=space) == [
        True, True, False, True,
    ]  # fmt: skip
    ring = [Happening(0, 0), Happening(1, 0), Happening(2, 0), Happening(5, 0)]
    assert ask('Select all() Where &location in within("ring")', *ring, space=space) == [False, True, True, False]


def test_a_place_across_the_antimeridian_is_found() -> None:
    """Both of its parts, and nothing between them."""
    events = [Happening(178, 3), Happening(-179, 1), Happening(-179, 3), Happening(0, 0)]
    text = 'Select all() Where &location in within("fiji")'
    assert ask(text, *events, space=GEOGRAPHIC) == [True, True, False, False]


def test_terms_below_or_and_not_are_tested() -> None:
    """Where no term is necessary all events are candidates."""
    text = 'Select all() Where (&terms has ("fire") or &terms has ("smoke")) and not &terms has ("drill")'
    events = [Happening(terms=terms) for terms in (["fire"], ["smoke"], ["fire", "drill"], ["ice"], None)]
    assert ask(text, *events) == [True, True, False, False, False]


def test_attributes_of_the_source_are_tested() -> None:
    """As they were when the event was accepted; an event whose body says nothing has none."""
    text = "Select all() Where &location in box(-1, -1, 1, 1) and &owner = bob"
    events = [Happening(attributes=a) for a in ({"owner": "bob"}, {"owner": "eve"}, None)]
    assert ask(text, *events) == [True, False, False]
    rows = subscriptions([parse(text)], PLANAR)
    batch = to_batch("local", 1, [Happening().record()._replace(body="{no")])
    assert exact.passes(Facts(batch), np.array([0]), rows, np.array([0])).tolist() == [False]


def test_readings_are_tested() -> None:
    """Named ones, and plain ones by the context of the source; a missing one satisfies nothing."""
    box = "Select all() Where &location in box(-1, -1, 1, 1)"
    level = {"context": "level"}
    events = [
        Happening(readings={"level": 5}, attributes=level),
        Happening(readings={"level": 5}),
        Happening(readings={"level": 0}, attributes=level),
        Happening(readings=None, attributes=level),
    ]
    assert ask(f"{box} On @ > 1", *events) == [True, False, False, False]
    assert ask(f"{box} On @level > 1", *events) == [True, True, False, False]
    assert ask(f"{box} On not @ > 1", *events) == [False, True, True, True]


def test_what_asks_no_more_than_box_and_terms_passes() -> None:
    """Beside subscriptions that ask more, and without any pair at all."""
    texts = ["&location in box(0, 0, 1, 1)", "&location in circle(0, 0, 1)", '&terms has ("fire")']
    queries = [parse(f"Select all() Where {text}") for text in texts]
    assert taken(queries, [Happening(1, 1, ["fire"]), Happening(9, 9)]) == {(0, 0), (2, 0)}
    assert taken(queries, []) == set()
    assert taken([], [Happening()]) == set()


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("Select", None),
        ('Select all() Where &location in within("p")', None),
        ('Select all() Where &location in within("p")', ""),
        ('Select all() Where &location in within("p")', "{}"),
        ('Select all() Where &location in within("p")', '{"type":"Polygon","coordinates":[[[0,0],[1,1]]]}'),
        ('Select all() Where &location in within("p")', '{"type":"Polygon","coordinates":"all"}'),
    ],
)
def test_what_cannot_be_tested_is_refused(text: str, area: str | None) -> None:
    """As bad input, before any event meets it."""
    with pytest.raises(InputError):
        asked_of(SubscriptionBody(None, (), text, area, space="planar").to_json())


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
def worlds(draw: st.DrawFn) -> tuple[Space, list[Query], list[Happening]]:
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
        given = draw(attributes)
        if given is not None and (context := draw(st.none() | _names)) is not None:
            given = {**given, "context": context}
        terms = draw(st.none() | st.lists(st.sampled_from("xyz"), max_size=3))
        events.append(Happening(x, y, terms, draw(st.none() | st.dictionaries(_names, _values)), given))
    return space, queries, events


@thorough()
@given(world=worlds())
def test_equals_the_language_itself(world: tuple[Space, list[Query], list[Happening]]) -> None:
    """Random queries of every kind of region, terms, attributes and readings take the events that they hold of."""
    space, queries, events = world
    expected = {
        (q, e) for q, query in enumerate(queries) for e, event in enumerate(events) if wanted(query, event, space)
    }
    assert taken(queries, events, space) == expected
