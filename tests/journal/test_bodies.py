"""Bodies of control records: how a query is split, round trips, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
import shapely
from hypothesis import assume, example, given
from hypothesis import strategies as st
from lacl_queries import queries

from roamcast.errors import InputError, NotFoundError
from roamcast.journal.bodies import BindingBody, PositionBody, RemovalBody, SubscriptionBody
from roamcast.lacl import Query, parse, plan_of
from roamcast.lacl.syntax import Within
from roamcast.lacl.vocabulary import MAX_PERIOD
from roamcast.model import EARLIEST, LATEST, Box
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC, PLANAR, contains

HALL = shapely.Polygon([(0, 0), (10, 0), (10, 5), (0, 1 / 3)])
FIJI = shapely.MultiPolygon([shapely.box(177, -19, 180, -16), shapely.box(-180, -19, -178, -15)])
PLACES = Places({"hall": HALL, "fiji": FIJI})


def split(text: str) -> SubscriptionBody:
    return SubscriptionBody.of(parse(text), PLACES, GEOGRAPHIC)


@pytest.mark.parametrize(
    ("where", "box", "terms"),
    [
        ("&location in box(0, 1, 2, 3)", Box(0, 1, 2, 3), ()),
        ("&location in box(170, 1, -170, 3)", Box(170, 1, -170, 3), ()),
        ('&terms has ("smoke", "fire") and &terms has ("fire")', None, ("fire", "smoke")),
        ('&location in box(0, 1, 2, 3) and &terms has ("fire")', Box(0, 1, 2, 3), ("fire",)),
    ],
)
def test_a_query_of_box_and_terms_needs_no_further_test(where: str, box: Box | None, terms: tuple[str, ...]) -> None:
    """Everything else is None."""
    assert split(f"Select all() Where {where}") == SubscriptionBody(box, terms)


@pytest.mark.parametrize(
    "more",
    [
        " and &owner = bob",
        ' and (&terms has ("ice") or &terms has ("snow"))',
        ' and not &terms has ("ice")',
        " On @level > 1",
    ],
)
def test_other_conditions_are_tested_afterwards(more: str) -> None:
    """Box and terms stay necessary; the conditions are carried as values."""
    query = parse(f'Select all() Where &location in box(0, 1, 2, 3) and &terms has ("fire"){more}')
    expected = SubscriptionBody(Box(0, 1, 2, 3), ("fire",), source=query.source_condition, on=query.on)
    assert SubscriptionBody.of(query, PLACES, GEOGRAPHIC) == expected
    assert expected.source is not None or expected.on is not None


def test_a_period_is_kept_in_microseconds() -> None:
    """It needs no test of the event."""
    assert split('Select all() Where &terms has ("fire") Every 5 s') == SubscriptionBody(
        None, ("fire",), every=5 * 10**6
    )


@pytest.mark.parametrize("space", [GEOGRAPHIC, PLANAR])
def test_a_circle_has_a_bounding_box(space: Any) -> None:
    """The circle is measured in the space that is named."""
    query = parse("Select all() Where &location in circle(3, 4, 50)")
    body = SubscriptionBody.of(query, PLACES, space)
    assert body == SubscriptionBody(space.box_around(3, 4, 50), (), circle=(3.0, 4.0, 50.0), space=space.name)


@pytest.mark.parametrize(("name", "box"), [("hall", Box(0, 0, 10, 5)), ("fiji", Box(177, -19, -178, -15))])
def test_a_place_has_its_bounds_and_its_polygon(name: str, box: Box) -> None:
    """The polygon round-trips exactly."""
    body = split(f'Select all() Where &location in within("{name}")')
    assert (body.box, body.place) == (box, name)
    assert shapely.from_geojson(body.area).equals_exact(PLACES.get(name), 0)


def test_a_moving_region_has_a_radius_and_no_box() -> None:
    """With or without further conditions."""
    text = 'Select all() Where &location in rang:loc(0.5 km) and &terms has ("fire")'
    assert split(text) == SubscriptionBody(None, ("fire",), moving_radius=500.0)
    more = parse(f"{text} On @level > 1")
    expected = SubscriptionBody(None, ("fire",), on=more.on, moving_radius=500.0)
    assert SubscriptionBody.of(more, PLACES, GEOGRAPHIC) == expected


@pytest.mark.parametrize("radius", [-1, "5", True, [5]])
def test_an_invalid_radius_is_refused(radius: Any) -> None:
    """So is a radius together with a box."""
    with pytest.raises(InputError, match="radius"):
        SubscriptionBody.from_json(json.dumps({"version": 2, "box": None, "terms": [], "moving_radius": radius}))
    with pytest.raises(InputError, match="radius"):
        SubscriptionBody.from_json('{"version": 2, "box": [0, 0, 1, 1], "terms": [], "moving_radius": 5}')


def test_an_unknown_place_is_refused() -> None:
    """With the error of `Places`."""
    with pytest.raises(NotFoundError, match="no place named 'mars'"):
        split('Select all() Where &location in within("mars")')


@example(x=1 / 3, y=2 / 3, size=1e-9)
@given(x=st.floats(-170, 170), y=st.floats(-80, 80), size=st.floats(1e-9, 9))
def test_corners_of_a_place_are_in_its_box_and_its_area(x: float, y: float, size: float) -> None:
    """After a round trip of the polygon."""
    corners = np.array([(x, y), (x + size, y), (x + size / 3, y + size)])
    shape = shapely.Polygon(corners)
    assume(shape.is_valid and not shape.is_empty)
    query = parse('Select all() Where &location in within("p")')
    body = SubscriptionBody.from_json(SubscriptionBody.of(query, Places({"p": shape}), GEOGRAPHIC).to_json())
    assert body.box is not None
    assert contains(*body.box, corners[:, 0], corners[:, 1]).all()
    assert shapely.intersects_xy(shapely.from_geojson(body.area), corners[:, 0], corners[:, 1]).all()


@given(query=queries().filter(lambda query: plan_of(query) == "match"))
def test_a_subscription_round_trips(query: Query) -> None:
    """With all parts of its query."""
    location = query.location
    places = Places({location.place: HALL}) if isinstance(location, Within) else Places({})
    body = SubscriptionBody.of(query, places, GEOGRAPHIC)
    assert SubscriptionBody.from_json(body.to_json()) == body
    assert (body.source, body.on) == (query.source_condition, query.on)
    assert (body.terms, body.every) == (tuple(sorted(query.terms)), query.every and query.every.period)


@given(query=queries(), subscriber=st.text(min_size=1), initial=st.booleans())
def test_a_binding_round_trips(query: Query, subscriber: str, initial: bool) -> None:
    """With the condition of its query."""
    body = BindingBody.of(query, subscriber, initial=initial)
    assert BindingBody.from_json(body.to_json()) == body
    assert (body.subscriber, body.initial, body.every) == (subscriber, initial, query.every and query.every.period)
    assert body.on == query.on


def test_a_body_has_a_version_and_leaves_out_what_is_none() -> None:
    """As it is in the journal."""
    assert orjson.loads(SubscriptionBody(Box(0, 1, 2, 3), ("fire",)).to_json()) == {
        "version": 2, "box": [0, 1, 2, 3], "terms": ["fire"], "space": "geographic",
    }  # fmt: skip
    assert orjson.loads(SubscriptionBody(None, ()).to_json()) == {
        "version": 2, "box": None, "terms": [], "space": "geographic",
    }  # fmt: skip
    assert orjson.loads(BindingBody("ann").to_json()) == {"version": 2, "subscriber": "ann", "initial": False}


def test_only_some_keys_are_required() -> None:
    """Box and terms of a subscription, the subscriber of a binding. Terms are sorted and distinct."""
    text = '{"version":2,"box":[0,0,1,1],"terms":["b","a","b"]}'
    assert SubscriptionBody.from_json(text) == SubscriptionBody(Box(0, 0, 1, 1), ("a", "b"))
    assert BindingBody.from_json('{"version":2,"subscriber":"ann"}') == BindingBody("ann")


NONSENSE: dict[str, str | None] = {
    "none": None,
    "empty": "",
    "no JSON": "{box",
    "a list": "[1]",
    "a text": '"version"',
    "null": "null",
    "a number": "1",
    "deep": "[" * 100_000,
    "half a character": '{"version":2,"box":null,"terms":["\\ud800"]}',
}

SUBSCRIPTION = {"version": 2, "box": [0, 0, 1, 1], "terms": ["fire"]}
BINDING = {"version": 2, "subscriber": "ann", "initial": False}


def changed(body: dict[str, Any], **parts: Any) -> str:
    return orjson.dumps({**body, **parts}).decode()


def without(body: dict[str, Any], part: str) -> str:
    return orjson.dumps({name: value for name, value in body.items() if name != part}).decode()


BAD_SUBSCRIPTIONS: dict[str, str | None] = {
    **NONSENSE,
    "NaN in the box": '{"version":2,"box":[0,0,NaN,1],"terms":[]}',
    "infinity in the box": '{"version":2,"box":[0,0,1e999,1],"terms":[]}',
    "no version": without(SUBSCRIPTION, "version"),
    "no box": without(SUBSCRIPTION, "box"),
    "no terms": without(SUBSCRIPTION, "terms"),
    "another version": changed(SUBSCRIPTION, version=1),
    "version as a text": changed(SUBSCRIPTION, version="1"),
    "version as a boolean": changed(SUBSCRIPTION, version=True),
    "reversed box": changed(SUBSCRIPTION, box=[0, 1, 1, 0]),
    "box of three": changed(SUBSCRIPTION, box=[0, 0, 1]),
    "box of five": changed(SUBSCRIPTION, box=[0, 0, 1, 1, 1]),
    "box as a text": changed(SUBSCRIPTION, box="0011"),
    "box of texts": changed(SUBSCRIPTION, box=["0", "0", "1", "1"]),
    "box of booleans": changed(SUBSCRIPTION, box=[False, False, True, True]),
    "box with null": changed(SUBSCRIPTION, box=[0, 0, None, 1]),
    "box by name": changed(SUBSCRIPTION, box={"0": 1, "1": 1, "2": 1, "3": 1}),
    "box as a number": changed(SUBSCRIPTION, box=7),
    "terms as a text": changed(SUBSCRIPTION, terms="fire"),
    "terms that are numbers": changed(SUBSCRIPTION, terms=[1, 2]),
    "terms that are lists": changed(SUBSCRIPTION, terms=[["fire"]]),
    "terms with null": changed(SUBSCRIPTION, terms=["fire", None]),
    "terms by name": changed(SUBSCRIPTION, terms={"fire": True}),
    "terms as null": changed(SUBSCRIPTION, terms=None),
    "unknown key query": changed(SUBSCRIPTION, query="Select all()"),
    "condition as a text": changed(SUBSCRIPTION, source="&a = 1"),
    "condition as an empty list": changed(SUBSCRIPTION, on=[]),
    "condition with an unknown operator": changed(SUBSCRIPTION, on=["~", "@a", 1]),
    "circle of two": changed(SUBSCRIPTION, circle=[0, 0]),
    "circle of texts": changed(SUBSCRIPTION, circle=["0", "0", "1"]),
    "circle with a negative radius": changed(SUBSCRIPTION, circle=[0, 0, -1]),
    "place without area": changed(SUBSCRIPTION, place="p"),
    "area without place": changed(SUBSCRIPTION, area="{}"),
    "area as an object": changed(SUBSCRIPTION, place="p", area={}),
    "unknown space": changed(SUBSCRIPTION, space="hyperbolic"),
    "space as a list": changed(SUBSCRIPTION, space=[]),
    "space as null": changed(SUBSCRIPTION, space=None),
    "period of zero": changed(SUBSCRIPTION, every=0),
    "unknown key": changed(SUBSCRIPTION, colour="red"),
    "key named self": changed(SUBSCRIPTION, self=1),
}


@pytest.mark.parametrize("body", BAD_SUBSCRIPTIONS)
def test_an_invalid_subscription_is_refused(body: str) -> None:
    """With InputError and a message."""
    with pytest.raises(InputError) as caught:
        SubscriptionBody.from_json(BAD_SUBSCRIPTIONS[body])
    assert caught.value.message


BAD_BINDINGS: dict[str, str | None] = {
    **NONSENSE,
    "no version": without(BINDING, "version"),
    "another version": changed(BINDING, version=1),
    "no subscriber": without(BINDING, "subscriber"),
    "empty subscriber": changed(BINDING, subscriber=""),
    "subscriber as a number": changed(BINDING, subscriber=1),
    "subscriber as null": changed(BINDING, subscriber=None),
    "initial as a number": changed(BINDING, initial=1),
    "initial as null": changed(BINDING, initial=None),
    "condition as an empty list": changed(BINDING, on=[]),
    "condition as a boolean": changed(BINDING, on=True),
    "condition as a text": changed(BINDING, on="@ > 1"),
    "period of zero": changed(BINDING, every=0),
    "unknown key": changed(BINDING, colour="red"),
}


@pytest.mark.parametrize("body", BAD_BINDINGS)
def test_an_invalid_binding_is_refused(body: str) -> None:
    """With InputError and a message."""
    with pytest.raises(InputError) as caught:
        BindingBody.from_json(BAD_BINDINGS[body])
    assert caught.value.message


@pytest.mark.parametrize("every", [-1, 1.5, True, "5", [], MAX_PERIOD + 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize(("kind", "body"), [(SubscriptionBody, SUBSCRIPTION), (BindingBody, BINDING)])
def test_an_invalid_period_is_refused(kind: Any, body: dict[str, Any], every: Any) -> None:
    """A period is an integer of microseconds, small enough for times not to overflow."""
    with pytest.raises(InputError, match="not a period"):
        kind.from_json(changed(body, every=every))


@pytest.mark.parametrize(("kind", "body"), [(SubscriptionBody, SUBSCRIPTION), (BindingBody, BINDING)])
def test_the_longest_period_is_accepted(kind: Any, body: dict[str, Any]) -> None:
    """The limit is that of LACL."""
    assert kind.from_json(changed(body, every=MAX_PERIOD)).every == MAX_PERIOD


@pytest.mark.parametrize("body", [RemovalBody(EARLIEST), RemovalBody(LATEST), PositionBody(EARLIEST, LATEST)])
def test_times_are_read_as_written(body: RemovalBody | PositionBody) -> None:
    assert type(body).from_json(body.to_json()) == body


@pytest.mark.parametrize("time", [EARLIEST - 1, LATEST + 1, 1.5, True, "5", None])
def test_invalid_times_are_refused(time: Any) -> None:
    """With InputError; and so is a move that ends before it begins."""
    for body in ({"begin": time, "end": LATEST}, {"begin": EARLIEST, "end": time}, {"begin": 2, "end": 1}):
        with pytest.raises(InputError):
            PositionBody.from_json(orjson.dumps({"version": 2, **body}).decode())
    with pytest.raises(InputError):
        RemovalBody.from_json(orjson.dumps({"version": 2, "forwarded_until": time}).decode())


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_parts = st.sampled_from(
    [
        "version",
        "box",
        "terms",
        "circle",
        "place",
        "area",
        "source",
        "on",
        "every",
        "space",
        "subscriber",
        "initial",
        "begin",
        "end",
        "x",
    ]
)


@given(
    body=st.sampled_from([SUBSCRIPTION, BINDING, {"version": 2, "begin": 1, "end": 5}]),
    parts=st.dictionaries(_parts, _json, max_size=3),
)
def test_any_body_is_read_or_refused(body: dict[str, Any], parts: dict[str, Any]) -> None:
    """The only error is InputError, and what is accepted round-trips."""
    for kind in (SubscriptionBody, BindingBody, PositionBody):
        try:
            read: SubscriptionBody | BindingBody | PositionBody = kind.from_json(changed(body, **parts))
        except InputError:
            continue
        assert kind.from_json(read.to_json()) == read
