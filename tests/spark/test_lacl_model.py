"""Queries match the events for which their conditions hold, evaluated one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import shapely
from hypothesis import given
from hypothesis import strategies as st
from lacl_queries import conditions, queries
from pyspark.sql.types import LongType, StructField

from roamcast.lacl import Query, check, holds, parse, plan_of, to_text
from roamcast.lacl.syntax import (
    And,
    Between,
    Boolean,
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
from roamcast.model import Box
from roamcast.places import Places
from roamcast.space import SPACES, Space, contains
from roamcast.spark.rows.conditions import NO_NEEDS, needs_of
from roamcast.spark.rows.event_fields import FieldReader
from roamcast.spark.rows.events import EventReader
from roamcast.spark.rows.subscriptions import SubscriptionReader
from roamcast.spark.tasks.index_files import write_index
from roamcast.spark.tasks.match import MatchTask, ResultColumn

COLUMNS = (ResultColumn("event", True, 0), ResultColumn("subscription", False, 0))
NAMES = ("event", "x", "y", "terms", "readings", "attributes", "@a", "@b", "&kind", "&floor", "&open", "&context")
READINGS, KINDS, TERMS = ("a", "b"), ("kind", "floor", "open", "context"), ("fire", "smoke")

# Places of degrees: across the antimeridian, with a hole, and at a pole. The plane has them, too.
PLACES = {
    "fiji": "MULTIPOLYGON(((178 -1,180 -1,180 1,178 1,178 -1)),((-180 -1,-178 -1,-178 1,-180 1,-180 -1)))",
    "ring": "POLYGON((0 0,2 0,2 2,0 2,0 0),(0.5 0.5,1 0.5,1 1,0.5 0.5))",
    "pole": "POLYGON((-180 89,0 88,180 89,180 90,-180 90,-180 89))",
}
_longitudes = st.sampled_from([-180.0, -179.0, -178.0, 0.0, 0.5, 1.0, 2.0, 179.0, 180.0]) | st.floats(-180, 180)
_latitudes = st.sampled_from([-90.0, -1.0, 0.0, 0.5, 1.0, 2.0, 89.0, 89.999, 90.0]) | st.floats(-90, 90)
_values = st.sampled_from([0.0, 1.0, 2.0, 0.5])
_numbers = st.builds(Number, _values)


def _tests(sigil: Any, names: Sequence[str | None], literals: Any) -> st.SearchStrategy[Condition]:
    variable = st.sampled_from(names).map(lambda name: Variable(sigil, name))
    return st.one_of(
        st.builds(Compare, variable, st.sampled_from(["=", "!="]), literals),
        st.builds(Compare, variable, st.sampled_from(["<", ">="]), _numbers),
        st.builds(In, variable, st.lists(_numbers, min_size=1, max_size=2).map(tuple)),
        st.builds(Between, variable, _numbers, _numbers),
    )


_texts = st.sampled_from(["bus", "tram", "a", "b"]).map(Text)
_has = st.lists(st.sampled_from(TERMS).map(Text), min_size=1, max_size=2).map(
    lambda terms: Has(Variable("&", "terms"), tuple(terms))
)
_of_sources = _tests("&", KINDS, _numbers | _texts | st.builds(Boolean, st.booleans()))
_on = st.none() | conditions(_tests("@", [*READINGS, None, "missing"], _numbers))


@st.composite
def regions(draw: st.DrawFn, space: Space) -> Region:
    kind = draw(st.sampled_from(["box", "circle", "place"]))
    if kind == "place":
        return Within(draw(st.sampled_from([*PLACES])))
    x, y = draw(_longitudes), draw(_latitudes)
    if kind == "circle":
        return Circle(x, y, draw(st.sampled_from([0.0, 0.5, 1.0, 111_000.0, 222_000.0, 5e6, 2.1e7])))
    south, north = sorted([y, draw(_latitudes)])
    west, east = sorted([x, draw(_longitudes)])
    across = space.name == "geographic" and east - west > 180
    return BoxRegion(Box(east, south, west, north) if across else Box(west, south, east, north))


@st.composite
def texts_of(draw: st.DrawFn, space: Space) -> str:
    parts: list[Condition] = draw(st.lists(conditions(_of_sources | _has), max_size=2))
    region = draw(st.none() | regions(space))
    parts.append(draw(_has) if region is None else Inside(Variable("&", "location"), region))
    where = And(tuple(draw(st.permutations(parts)))) if len(parts) > 1 else parts[0]
    return to_text(Query(Select("all"), where, draw(_on)))


class Event(NamedTuple):
    x: float
    y: float
    terms: list[str] | None
    readings: dict[str, float]
    attributes: dict[str, Any]


_events = st.builds(
    Event,
    _longitudes,
    _latitudes,
    st.none() | st.lists(st.sampled_from(TERMS), max_size=3),
    st.dictionaries(st.sampled_from(READINGS), _values),
    st.fixed_dictionaries(
        {},
        optional={
            "kind": st.sampled_from(["bus", "tram"]),
            "floor": _values,
            "open": st.booleans(),
            "context": st.sampled_from(["a", "b", "c"]),
        },
    ),
)


def by_definition(query: Query, event: Event, space: Space, places: Places) -> bool:
    def inside(region: Region) -> bool:
        match region:
            case BoxRegion(box):
                return bool(contains(*box, event.x, event.y))
            case Circle(x, y, radius):
                return bool(space.distance(x, y, event.x, event.y) <= radius)
            case Within(place):
                return bool(shapely.intersects_xy(places.get(place), event.x, event.y))
            case _:
                raise AssertionError(region)

    context = event.attributes.get("context")
    return holds(query.where, event.attributes, terms=frozenset(event.terms or ()), inside=inside) and (
        query.on is None or holds(query.on, event.readings, context=context)
    )


def table(events: Sequence[Event]) -> pa.Table:
    """With readings and attributes in all forms."""
    columns: Mapping[str, pa.Array] = {
        "event": pa.array(range(len(events)), pa.int64()),
        "x": pa.array([event.x for event in events], pa.float64()),
        "y": pa.array([event.y for event in events], pa.float64()),
        "terms": pa.array([event.terms for event in events], pa.list_(pa.string())),
        "readings": pa.array([[*event.readings.items()] for event in events], pa.map_(pa.string(), pa.float64())),
        "attributes": pa.array([orjson.dumps(event.attributes).decode() for event in events], pa.string()),
    }
    types = {"kind": pa.string(), "floor": pa.float64(), "open": pa.bool_(), "context": pa.string()}
    readings = {f"@{n}": pa.array([e.readings.get(n) for e in events], pa.float64()) for n in READINGS}
    attributes = {f"&{n}": pa.array([e.attributes.get(n) for e in events], t) for n, t in types.items()}
    return pa.table({**columns, **readings, **attributes})


FORMS = (
    FieldReader(reading_map=4, texts=5),
    FieldReader(readings=(("a", 6), ("b", 7)), attributes=tuple((name, 8 + n) for n, name in enumerate(KINDS))),
)


@given(data=st.data(), name=st.sampled_from([*SPACES]), batch_rows=st.integers(1, 20))
def test_queries_match_what_their_conditions_say(data: st.DataObject, name: str, batch_rows: int) -> None:
    """In boxes, circles and places, also across the antimeridian and at poles; with readings, attributes and terms."""
    space = SPACES[name]
    places = Places({place: shapely.from_wkt(text) for place, text in PLACES.items()}, space)
    texts = data.draw(st.lists(texts_of(space), min_size=1, max_size=8))
    events = data.draw(st.lists(_events, max_size=12))
    reader = SubscriptionReader(
        name, (StructField("subscription", LongType()),), ("row", "query"), (), None, None, lacl=1
    )
    rows = pa.table([pa.array(range(len(texts)), pa.int64()), pa.array(texts)], ["row", "query"])
    checked = reader.read(rows, places)
    assert checked.bad_rows.num_rows == 0
    expected = [
        (e, s)
        for e, event in enumerate(events)
        for s, text in enumerate(texts)
        if by_definition(check(parse(text), places=places, space=space), event, space, places)
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = write_index(Path(folder), checked)
        for fields in FORMS:
            of_events = EventReader(name, 1, NAMES, (1, 2), 3, None, fields=fields)
            task = MatchTask(of_events, files, COLUMNS, "fail")
            found = [row for batch in task.run(iter(table(events).to_batches(batch_rows))) for row in batch.to_pylist()]
            assert sorted((row["event"], row["subscription"]) for row in found) == expected


@given(queries())
def test_any_query_is_read_or_refused(query: Query) -> None:
    """Those of plan match without Every, Life-control and moving region are read; the others have a problem."""
    text = to_text(query)
    reader = SubscriptionReader("geographic", (), ("query",), (), None, None, lacl=0)
    places = Places({name: shapely.box(0, 0, 1, 1) for name in _places(query)})
    checked = reader.read(pa.table({"query": [text]}), places)
    may_match = plan_of(query) == "match" and query.every is None and query.life_control is None
    may_match &= "rang:loc" not in to_text(Query(query.select, query.where))
    assert checked.bad_rows.num_rows == (not may_match)
    assert checked.conditions is not None
    assert (needs_of(checked.conditions) == NO_NEEDS) or may_match


def _places(query: Query) -> list[str]:
    region = query.location
    return [region.place] if isinstance(region, Within) else []
