"""`bindings` over tracks, and the join of events with them, equal the choice at each time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from binding import Thing, World, query
from pyspark.errors import PythonException
from pyspark.sql import functions as f

from roamcast.errors import InputError
from roamcast.space import PLANAR
from roamcast.spark import bindings, match
from roamcast.spark.bindings import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TRACK = "time long, x double, y double, kind string"
QUERIES = {
    "near": "Select Where &location in nearest On @ > 5",
    "bus": "Select nearof() Where &kind = bus and &location in rang:loc(3)",
    "far": "Select remoteof() Where &location in rang:loc(3) On @noise between 1 and 8 or @speed >= 3",
    "three": "Select Where &location in nearest(3) Life-control #kind = guard",
}
Row = tuple[str, int, float, float, str | None]


def tracks(names: Sequence[str], kinds: Sequence[str | None], seed: int) -> list[Row]:
    rng = random.Random(seed)
    return [
        (rng.choice(names), rng.randrange(40), float(rng.randrange(6)), float(rng.randrange(6)), rng.choice(kinds))
        for _ in range(60)
    ]


def once(rows: Sequence[Row]) -> list[Row]:
    """One row of each entity at each time."""
    return [*{row[:2]: row for row in rows}.values()]


SOURCES = once(tracks(["a", "b", "c", "d"], ["bus", "tram", None], 1))
SUBSCRIBERS = once(tracks(["a", "ben"], ["guard", None], 2))
EVENTS = [
    (n, random.Random(n).choice("abcdx"), n % 44, {"noise": n % 11.0, "speed": n % 7.0} if n % 3 else None)
    for n in range(400)
]


def in_world() -> list[tuple[int, str]]:
    """The event and the subscription of each match, decided at the time of the event."""
    world, found = World(PLANAR, {}), []
    world.subscribers = {f"subscriber {name}": Thing({}) for name in ("a", "ben")}
    world.subscriptions = {name: (f"subscriber {owner(name)}", query(text)) for name, text in QUERIES.items()}
    for now in range(44):
        for side, things, rows in (("source", world.sources, SOURCES), ("subscriber", world.subscribers, SUBSCRIBERS)):
            for id, time, x, y, kind in rows:
                if time == now:
                    name = f"{side} {id}"
                    things.setdefault(name, Thing({}))
                    world.move(name, x, y, now)
                    things[name].attributes = {"context": "noise"} | ({"kind": kind} if kind else {})
        for n, source, time, readings in EVENTS:
            for name in QUERIES if time == now else ():
                if f"source {source}" in world.chosen(name) and of_interest(name, readings or {}):
                    found.append((n, name))
    return sorted(found)


def of_interest(name: str, readings: dict[str, float]) -> bool:
    if name == "near":
        return readings.get("noise", 0) > 5
    return name != "far" or 1 <= readings.get("noise", 0) <= 8 or readings.get("speed", 0) >= 3


def owner(name: str) -> str:
    return "a" if name in ("near", "far") else "ben"


@pytest.fixture(scope="module")
def subscriptions(spark: SparkSession) -> DataFrame:
    rows = [(name, owner(name), text) for name, text in QUERIES.items()]
    return spark.createDataFrame(rows, "name string, subscriber string, query string")


@pytest.fixture(scope="module")
def sources(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(SOURCES, f"source string, {TRACK}").withColumn("context", f.lit("noise"))


@pytest.fixture(scope="module")
def subscribers(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(SUBSCRIBERS, f"subscriber string, {TRACK}").withColumn("time", f.expr("INT(time)"))


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    columns = "id int, source string, time long, readings map<string,double>"
    return spark.createDataFrame(EVENTS, columns).withColumn("context", f.lit("noise"))


FIELDS: dict[str, Any] = {"attributes": ["kind"], "subscriber_attributes": ["kind"], "space": "planar", "id": "name"}
OF_EVENTS: dict[str, Any] = {"readings": "readings", "attributes": ["context"]}


def test_events_match_the_sources_that_are_bound_at_their_time(
    subscriptions: DataFrame, sources: DataFrame, subscribers: DataFrame, events: DataFrame
) -> None:
    """As a model that measures all sources at each time; also with timestamps."""
    expected = in_world()
    assert len(expected) > 100
    for of_time in ("time", "timestamp_seconds(time)", "CAST(timestamp_seconds(time) AS timestamp_ntz)"):
        one, other, happened = (
            frame.withColumn("time", f.expr("BIGINT(time)")).withColumn("time", f.expr(of_time))
            for frame in (sources, subscribers, events)
        )
        bound = bindings(subscriptions, one, other, **FIELDS)
        found = match(happened, bound, columns=["id", "name"], **OF_EVENTS)
        assert sorted(tuple(row) for row in found.collect()) == expected
        assert bound.frame.schema["begin"].dataType == happened.schema["time"].dataType


def test_bindings_are_a_frame(spark: SparkSession) -> None:
    """With the columns of subscriptions; anyof() is marked as a free choice."""
    wanted = spark.createDataFrame(
        [(7, "u", "Select anyof() Where &location in rang:loc(2)"), (8, "u", "Select Where &location in nearest")],
        "number int, subscriber string, query string",
    )
    moves = spark.createDataFrame(
        [(1, 10, 0.0, 0.0), (2, 20, 1.0, 0.0), (1, 30, 9.0, 0.0), (2, 40, 2.0, 0.0)],
        "source int, time long, x double, y double",
    )
    still = spark.createDataFrame([("u", 5, 0, 0), ("v", 5, 0, 0)], "subscriber string, time int, x int, y int")
    moves = moves.union(spark.sql("SELECT 3, 50L, 0.5D, 0D"))
    bound = bindings(wanted, moves, still, space="planar").persist()
    assert bound.frame.columns == ["number", "subscriber", "source", "begin", "end", "free_choice"]
    assert (bound.count, bound.columns) == (2, ["number", "subscriber"])
    rows = sorted(tuple(row) for row in bound.frame.drop("subscriber").collect())
    assert rows == [
        (7, "1", 10, 30, True), (7, "2", 30, None, True),
        (8, "1", 10, 30, False), (8, "2", 30, 50, False), (8, "3", 50, None, False),
    ]  # fmt: skip
    happened = spark.createDataFrame([(1, 29), (1, 30), (3, 60), (2, None)], "source int, time long")
    found = match(happened, bound, columns=["source", "time", "number"], on_bad_rows="skip")
    assert sorted(tuple(row) for row in found.collect()) == [(1, 29, 7), (1, 29, 8), (3, 60, 8)]
    assert frame_of(bound).storageLevel.useMemory
    assert not frame_of(bound.unpersist()).storageLevel.useMemory


def test_mistakes_are_errors_before_a_job_starts(
    subscriptions: DataFrame, sources: DataFrame, subscribers: DataFrame, events: DataFrame
) -> None:
    """Columns, types and what conditions need, on all sides."""

    def refused(message: str, *changed: DataFrame, **arguments: Any) -> None:
        frames = [subscriptions, sources, subscribers]
        frames[: len(changed)] = changed
        with pytest.raises(InputError, match=message):
            bindings(*frames, **FIELDS | arguments)

    refused("sources: no column 'speed'", x="speed")
    refused("subscriptions: a pandas", subscriptions.toPandas())  # type: ignore[arg-type]
    refused("sources: sources are a stream", subscriptions, subscriptions.sparkSession.readStream.format("rate").load())
    refused("columns: not a list of names: 'name'", columns="name")
    refused("x: not the name of a column: 1", x=1)
    failing = subscriptions.where("raise_error('a job started') IS NULL")
    refused("sources: no column 'speed'", failing, x="speed")
    refused("tracks: 'time' is timestamp of", failing, sources.withColumn("time", f.now()))
    refused("bindings: two columns 'source'", failing.withColumn("source", f.lit(1)), columns=["source"])
    refused(
        "subscribers: no column 'person'", subscriptions.withColumnRenamed("subscriber", "person"), subscriber="person"
    )
    refused("subscriptions: no column 'text'", lacl="text")
    refused("sources: subscriptions test &kind, but sources have no attributes", attributes=None)
    refused("subscribers: subscriptions test #kind, but subscribers have no such", subscriber_attributes=["x"])
    refused("tracks: 'time' is timestamp of sources, and int of", subscriptions, sources.withColumn("time", f.now()))
    refused("sources: column 'time' is double", subscriptions, sources.withColumn("time", f.lit(1.5)))
    bound = bindings(subscriptions, sources, subscribers, **FIELDS)
    for message, fields in (
        ("events: no column 'sauce'", {"source": "sauce", **OF_EVENTS}),
        ("events: column 'readings' is map<string,double>", {"time": "readings", **OF_EVENTS}),
        ("events: subscriptions test @noise, but events have no readings", {}),
        ("events: subscriptions test plain @", {"readings": "readings"}),
        ("geometry: not used with bindings .omit geometry=", {"geometry": "shape", **OF_EVENTS}),
        ("x: not used with bindings", {"x": "lon", **OF_EVENTS}),
        ("terms: not used with bindings", {"terms": "tags", **OF_EVENTS}),
    ):
        with pytest.raises(InputError, match=message):
            match(events, bound, **fields)
    with pytest.raises(InputError, match="column 'time' is timestamp, but tracks have bigint"):
        match(events.withColumn("time", f.now()), bound, **OF_EVENTS)


def test_queries_that_need_no_tracks_are_bad_rows(
    spark: SparkSession, sources: DataFrame, subscribers: DataFrame
) -> None:
    """And those that need the order of events."""
    rows = [
        ("ben", "Select all() Where &terms has fire"), ("ben", "Select Where &location in nearest Every 1 s"),
        ("ben", "Select Where &location in nearest"), (None, "Select Where &location in nearest"),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, "subscriber string, query string").coalesce(1)
    with pytest.raises(
        InputError, match=r"query: all\(\) needs no tracks \(use roamcast.spark.compile with lacl=\).* 3 of 4"
    ):
        bindings(frame, sources, subscribers)
    bound = bindings(frame, sources, subscribers, on_bad_rows="skip")
    problems = bound.bad_rows["problem"].to_pylist()
    assert [problem.partition(" (")[0] for problem in problems] == [
        "query: all() needs no tracks", "query: Every needs events in the order in which they came",
        "subscriber is missing",
    ]  # fmt: skip
    assert bound.count == 1


def test_ids_that_repeat_are_bad_rows(spark: SparkSession, sources: DataFrame, subscribers: DataFrame) -> None:
    """As in `compile`: the first row that is good stays."""
    near = "Select Where &location in nearest"
    rows = [(1, "ben", "Select"), (1, "ben", near), (2, "ben", near), (1, "a", near)]
    frame = spark.createDataFrame(rows, "name int, subscriber string, query string").coalesce(1)
    bound = bindings(frame, sources, subscribers, id="name", on_bad_rows="skip")
    assert bound.count == 2
    assert bound.bad_rows["problem"].to_pylist()[-1] == "name 1 is also that of an earlier row"
    with pytest.raises(InputError, match="2 of 4 rows are bad"):
        bindings(frame, sources, subscribers, id="name")


def test_bad_rows_of_tracks_and_events(spark: SparkSession) -> None:
    """Fail the job, are left out, or are collected."""
    wanted = spark.createDataFrame(
        [("u", "Select Where &location in nearest On @a > 1")], "subscriber string, query string"
    )
    moves = spark.createDataFrame(
        [("s", 1, 0.0, 0.0), ("s", None, 0.0, 0.0), ("s", 2, 200.0, 0.0), (None, 2, 0.0, 0.0), ("", 2, 0.0, 0.0)],
        "source string, time long, x double, y double",
    )
    still = spark.createDataFrame([("u", 1, 0.0, 0.0)], "subscriber string, time long, x double, y double")
    with pytest.raises(PythonException, match=r"sources: (time is missing|x 200 is outside|source is (missing|empty))"):
        bindings(wanted, moves, still).frame.collect()
    bound = bindings(wanted, moves, still, on_bad_rows="skip")
    happened = spark.createDataFrame(
        [("s", 3, "2"), ("s", 3, "1"), ("s", 3, "far"), (None, 3, "2"), ("s", None, "2")],
        "source string, time long, a string",
    )
    found = match(happened, bound, readings=["a"], columns=["a", "subscriber"], on_bad_rows="collect").collect()
    assert sorted((row.a, row.subscriber or "", row.problem or "") for row in found) == [
        ("2", "", "source is missing"), ("2", "", "time is missing"), ("2", "u", ""),
        ("far", "", "a must be a number, not 'far'"),
    ]  # fmt: skip
    with pytest.raises(PythonException, match=r"events: (a must be|source is missing|time is missing)"):
        match(happened, bound, readings=["a"]).collect()


def test_events_may_be_a_stream_and_tracks_may_be_empty(spark: SparkSession, tmp_path: Path) -> None:
    """Bad events are collected from a stream, too."""
    wanted = spark.createDataFrame([("u", "Select Where &location in nearest")], "subscriber string, query string")
    of_source, of_subscriber = (
        spark.sql(f"SELECT '{id}' AS {name}, 1 AS time, 0 AS x, 0 AS y")
        for id, name in (("s", "source"), ("u", "subscriber"))
    )
    assert bindings(wanted, of_source.limit(0), of_subscriber).frame.count() == 0
    assert bindings(wanted.limit(0), of_source, of_subscriber).frame.count() == 0
    bound = bindings(wanted, of_source, of_subscriber)
    schema, folder = "source string, time long", str(tmp_path / "events")
    spark.createDataFrame([("s", 0), ("s", 1), ("t", 1), ("s", None)], schema).write.json(folder)
    found: list[tuple[Any, ...]] = []
    matches = match(spark.readStream.schema(schema).json(folder), bound, on_bad_rows="collect").writeStream
    query = matches.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect()))).trigger(availableNow=True)
    query.start().awaitTermination(120)
    assert sorted(found, key=str) == [("s", 1, "u", None), ("s", None, None, "time is missing")]
