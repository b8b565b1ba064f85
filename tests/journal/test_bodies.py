"""Bodies of control records: how a query is split, that they read back as written, and what is refused."""

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
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.lacl import Query, parse, plan_of, to_text
from roamcast.lacl.syntax import Within
from roamcast.lacl.vocabulary import MAX_PERIOD
from roamcast.model import Box
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
def test_box_and_terms_say_it_all(where: str, box: Box | None, terms: tuple[str, ...]) -> None:
    """A query of nothing but a box and terms has nothing that is tested after."""
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
def test_whatever_else_is_asked_is_tested_after(more: str) -> None:
    """Box and terms stay necessary, and the query as a whole is there."""
    text = f'Select all() Where &location in box(0, 1, 2, 3) and &terms has ("fire"){more}'
    assert split(text) == SubscriptionBody(Box(0, 1, 2, 3), ("fire",), to_text(parse(text)))


def test_a_period_needs_no_test() -> None:
    """`Every` is kept apart, in microseconds."""
    assert split('Select all() Where &terms has ("fire") Every 5 s') == SubscriptionBody(
        None, ("fire",), every=5 * 10**6
    )


@pytest.mark.parametrize("space", [GEOGRAPHIC, PLANAR])
def test_a_circle_is_found_by_a_box_and_tested_after(space: Any) -> None:
    """The circle is one in the space that is named."""
    query = parse("Select all() Where &location in circle(3, 4, 50)")
    body = SubscriptionBody.of(query, PLACES, space)
    assert body == SubscriptionBody(space.box_around(3, 4, 50), (), to_text(query), space=space.name)


@pytest.mark.parametrize(("name", "box"), [("hall", Box(0, 0, 10, 5)), ("fiji", Box(177, -19, -178, -15))])
def test_a_place_is_found_by_its_bounds_and_tested_by_its_polygon(name: str, box: Box) -> None:
    """The polygon comes back point by point."""
    body = split(f'Select all() Where &location in within("{name}")')
    assert (body.box, body.query) == (box, f'Select all() Where &location in within("{name}")')
    assert shapely.from_geojson(body.area).equals_exact(PLACES.get(name), 0)


def test_a_region_around_the_subscriber_has_a_radius_and_no_box() -> None:
    """With nothing else but terms, that says it all."""
    text = 'Select all() Where &location in rang:loc(0.5 km) and &terms has ("fire")'
    assert split(text) == SubscriptionBody(None, ("fire",), around=500.0)
    more = f"{text} On @level > 1"
    assert split(more) == SubscriptionBody(None, ("fire",), to_text(parse(more)), around=500.0)


@pytest.mark.parametrize("around", [-1, "5", True, [5]])
def test_what_is_no_radius_is_refused(around: Any) -> None:
    """Nor may there be a box beside one."""
    with pytest.raises(InputError, match="radius"):
        SubscriptionBody.from_json(json.dumps({"version": 1, "box": None, "terms": [], "around": around}))
    with pytest.raises(InputError, match="radius"):
        SubscriptionBody.from_json('{"version": 1, "box": [0, 0, 1, 1], "terms": [], "around": 5}')


def test_a_place_that_is_not_known_is_refused() -> None:
    """Its error is that of the places."""
    with pytest.raises(NotFoundError, match="no place named 'mars'"):
        split('Select all() Where &location in within("mars")')


@example(x=1 / 3, y=2 / 3, size=1e-9)
@given(x=st.floats(-170, 170), y=st.floats(-80, 80), size=st.floats(1e-9, 9))
def test_points_of_a_place_are_in_its_box_and_its_area(x: float, y: float, size: float) -> None:
    """Every corner, as the polygon that was written and read back tells it."""
    corners = np.array([(x, y), (x + size, y), (x + size / 3, y + size)])
    shape = shapely.Polygon(corners)
    assume(shape.is_valid and not shape.is_empty)
    query = parse('Select all() Where &location in within("p")')
    body = SubscriptionBody.from_json(SubscriptionBody.of(query, Places({"p": shape}), GEOGRAPHIC).to_json())
    assert body.box is not None
    assert contains(*body.box, corners[:, 0], corners[:, 1]).all()
    assert shapely.intersects_xy(shapely.from_geojson(body.area), corners[:, 0], corners[:, 1]).all()


@given(query=queries().filter(lambda query: plan_of(query) == "match"))
def test_a_subscription_reads_back_as_it_was_written(query: Query) -> None:
    """Whatever query it comes from; and its query is the one that was given."""
    named = query.location
    places = Places({named.place: HALL}) if isinstance(named, Within) else Places({})
    body = SubscriptionBody.of(query, places, GEOGRAPHIC)
    assert SubscriptionBody.from_json(body.to_json()) == body
    assert body.query is None or parse(body.query) == query
    assert (body.terms, body.every) == (tuple(sorted(query.terms)), query.every and query.every.period)


@given(query=queries(), subscriber=st.text(min_size=1), initial=st.booleans())
def test_a_binding_reads_back_as_it_was_written(query: Query, subscriber: str, initial: bool) -> None:
    """Whatever query it comes from; and its condition is the one of the query."""
    body = BindingBody.of(query, subscriber, initial=initial)
    assert BindingBody.from_json(body.to_json()) == body
    assert (body.subscriber, body.initial, body.every) == (subscriber, initial, query.every and query.every.period)
    assert (body.on is None) == (query.on is None)
    assert body.on is None or parse(f"Select Where &location in nearest On {body.on}").on == query.on


def test_a_body_says_its_version_and_leaves_out_what_is_not_asked() -> None:
    """As it lies in the journal."""
    assert orjson.loads(SubscriptionBody(Box(0, 1, 2, 3), ("fire",)).to_json()) == {
        "version": 1, "box": [0, 1, 2, 3], "terms": ["fire"], "space": "geographic",
    }  # fmt: skip
    assert orjson.loads(SubscriptionBody(None, ()).to_json()) == {
        "version": 1, "box": None, "terms": [], "space": "geographic",
    }  # fmt: skip
    assert orjson.loads(BindingBody("ann").to_json()) == {"version": 1, "subscriber": "ann", "initial": False}


def test_a_body_may_leave_out_what_was_not_there_before() -> None:
    """Box and terms make a subscription, a subscriber makes a binding; terms are sorted, each once."""
    text = '{"version":1,"box":[0,0,1,1],"terms":["b","a","b"]}'
    assert SubscriptionBody.from_json(text) == SubscriptionBody(Box(0, 0, 1, 1), ("a", "b"))
    assert BindingBody.from_json('{"version":1,"subscriber":"ann"}') == BindingBody("ann")


NONSENSE: dict[str, str | None] = {
    "none": None,
    "empty": "",
    "no JSON": "{box",
    "a list": "[1]",
    "a text": '"version"',
    "null": "null",
    "a number": "1",
    "deep": "[" * 100_000,
    "half a character": '{"version":1,"box":null,"terms":["\\ud800"]}',
}

SUBSCRIPTION = {"version": 1, "box": [0, 0, 1, 1], "terms": ["fire"]}
BINDING = {"version": 1, "subscriber": "ann", "initial": False}


def changed(body: dict[str, Any], **parts: Any) -> str:
    return orjson.dumps({**body, **parts}).decode()


def without(body: dict[str, Any], part: str) -> str:
    return orjson.dumps({name: value for name, value in body.items() if name != part}).decode()


BAD_SUBSCRIPTIONS: dict[str, str | None] = {
    **NONSENSE,
    "NaN in the box": '{"version":1,"box":[0,0,NaN,1],"terms":[]}',
    "infinity in the box": '{"version":1,"box":[0,0,1e999,1],"terms":[]}',
    "no version": without(SUBSCRIPTION, "version"),
    "no box": without(SUBSCRIPTION, "box"),
    "no terms": without(SUBSCRIPTION, "terms"),
    "another version": changed(SUBSCRIPTION, version=2),
    "version as a text": changed(SUBSCRIPTION, version="1"),
    "version as a truth": changed(SUBSCRIPTION, version=True),
    "reversed box": changed(SUBSCRIPTION, box=[0, 1, 1, 0]),
    "box of three": changed(SUBSCRIPTION, box=[0, 0, 1]),
    "box of five": changed(SUBSCRIPTION, box=[0, 0, 1, 1, 1]),
    "box as a text": changed(SUBSCRIPTION, box="0011"),
    "box of texts": changed(SUBSCRIPTION, box=["0", "0", "1", "1"]),
    "box of truths": changed(SUBSCRIPTION, box=[False, False, True, True]),
    "box with null": changed(SUBSCRIPTION, box=[0, 0, None, 1]),
    "box by name": changed(SUBSCRIPTION, box={"0": 1, "1": 1, "2": 1, "3": 1}),
    "box as a number": changed(SUBSCRIPTION, box=7),
    "terms as a text": changed(SUBSCRIPTION, terms="fire"),
    "terms that are numbers": changed(SUBSCRIPTION, terms=[1, 2]),
    "terms that are lists": changed(SUBSCRIPTION, terms=[["fire"]]),
    "terms with null": changed(SUBSCRIPTION, terms=["fire", None]),
    "terms by name": changed(SUBSCRIPTION, terms={"fire": True}),
    "terms as null": changed(SUBSCRIPTION, terms=None),
    "query as a list": changed(SUBSCRIPTION, query=[]),
    "area as an object": changed(SUBSCRIPTION, area={}),
    "space that is none": changed(SUBSCRIPTION, space="hyperbolic"),
    "space as a list": changed(SUBSCRIPTION, space=[]),
    "space as null": changed(SUBSCRIPTION, space=None),
    "no period at all": changed(SUBSCRIPTION, every=0),
    "unknown part": changed(SUBSCRIPTION, colour="red"),
    "part named like nothing": changed(SUBSCRIPTION, self=1),
}


@pytest.mark.parametrize("body", BAD_SUBSCRIPTIONS)
def test_what_is_no_subscription_is_refused(body: str) -> None:
    """With an error that says why, and with no other."""
    with pytest.raises(InputError) as caught:
        SubscriptionBody.from_json(BAD_SUBSCRIPTIONS[body])
    assert caught.value.message


BAD_BINDINGS: dict[str, str | None] = {
    **NONSENSE,
    "no version": without(BINDING, "version"),
    "another version": changed(BINDING, version=2),
    "no subscriber": without(BINDING, "subscriber"),
    "empty subscriber": changed(BINDING, subscriber=""),
    "subscriber as a number": changed(BINDING, subscriber=1),
    "subscriber as null": changed(BINDING, subscriber=None),
    "first as a number": changed(BINDING, initial=1),
    "first as null": changed(BINDING, initial=None),
    "condition as a list": changed(BINDING, on=[]),
    "condition as a truth": changed(BINDING, on=True),
    "no period at all": changed(BINDING, every=0),
    "unknown part": changed(BINDING, colour="red"),
}


@pytest.mark.parametrize("body", BAD_BINDINGS)
def test_what_is_no_binding_is_refused(body: str) -> None:
    """With an error that says why, and with no other."""
    with pytest.raises(InputError) as caught:
        BindingBody.from_json(BAD_BINDINGS[body])
    assert caught.value.message


@pytest.mark.parametrize("every", [-1, 1.5, True, "5", [], MAX_PERIOD + 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize(("kind", "body"), [(SubscriptionBody, SUBSCRIPTION), (BindingBody, BINDING)])
def test_what_is_no_period_is_refused(kind: Any, body: dict[str, Any], every: Any) -> None:
    """A period is whole microseconds, and none that time could overflow with."""
    with pytest.raises(InputError, match="not a period"):
        kind.from_json(changed(body, every=every))


@pytest.mark.parametrize(("kind", "body"), [(SubscriptionBody, SUBSCRIPTION), (BindingBody, BINDING)])
def test_the_longest_period_is_one(kind: Any, body: dict[str, Any]) -> None:
    """What LACL allows the pipeline takes."""
    assert kind.from_json(changed(body, every=MAX_PERIOD)).every == MAX_PERIOD


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_parts = st.sampled_from(
    ["version", "box", "terms", "query", "area", "every", "space", "subscriber", "on", "initial", "x"]
)


@given(body=st.sampled_from([SUBSCRIPTION, BINDING]), parts=st.dictionaries(_parts, _json, max_size=3))
def test_any_body_is_read_or_refused(body: dict[str, Any], parts: dict[str, Any]) -> None:
    """Nothing but InputError comes out, and what was read is written as something that reads the same."""
    for kind in (SubscriptionBody, BindingBody):
        try:
            read: SubscriptionBody | BindingBody = kind.from_json(changed(body, **parts))
        except InputError:
            continue
        assert kind.from_json(read.to_json()) == read
