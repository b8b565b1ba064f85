"""`backtest` on Spark makes the letters of the command."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from backtests import LiveWorld, letters_of, live_world

from roamcast.backtest.request import Request, Subscriber
from roamcast.errors import InputError, NotFoundError
from roamcast.lacl import LaclError
from roamcast.spark import backtest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUERIES = {
    "nearest": "Select Where &location in nearest",
    "near": "Select nearof() Where &location in rang:loc(5) Every 3 s",
    "any": "Select anyof() Where &location in rang:loc(50)",
    "fire": 'Select all() Where &terms has ("fire") and &location in box(0, 0, 5, 5)',
    "around": "Select all() Where &location in rang:loc(3)",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveWorld]:
    """Ann walks from a to b. Some batches are files of their own."""
    with live_world(tmp_path_factory.mktemp("archive")) as world:
        for id, x in (("a", 0), ("b", 10)):
            world.node.register(id, "source", (x, 0))
        world.node.register("ann", "subscriber", (1, 0))
        world.publish("a", (0, 0), ["fire"])
        world.batch()
        world.begin = world.now()  # type: ignore[attr-defined]
        for step in range(6):
            world.publish("a", (step, 0), ["fire"])
            world.publish("b", (10 - step, 0), ["fire"])
            world.node.move(ann=(2 * step, 0))
            world.batch()
        yield world


def letters(frame: DataFrame) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(frame.collect(), key=lambda row: (row.subscription, row.number)):
        letter = {"number": row.number, "why": row.why, "event": orjson.loads(row.event)}
        found.setdefault(row.subscription, []).append({**letter, "subscription": row.subscription})
        assert bool(row.approximate) == (row.subscription == "any")
    return found


def times(world: LiveWorld) -> tuple[datetime, datetime]:
    begin = EPOCH + timedelta(microseconds=world.begin)  # type: ignore[attr-defined]
    return begin, begin + timedelta(hours=1)


def test_many_subscriptions_get_what_each_gets_alone(spark: SparkSession, world: LiveWorld) -> None:
    """From a frame with columns for subscribers and positions."""
    rows = [(id, text, "ann", None, None) for id, text in QUERIES.items()]
    rows.append(("here", QUERIES["nearest"], None, 9.0, 0.0))
    frame = spark.createDataFrame(rows, "id string, lacl string, subscriber string, x double, y double")
    found = letters(backtest(spark, world.folder, frame, *times(world)))
    for id, text, subscriber, x, y in rows:
        who = Subscriber(subscriber) if x is None else Subscriber.at(x, y)
        begin, end = ((time - EPOCH) // timedelta(microseconds=1) for time in times(world))
        assert found[id] == letters_of(world.run(Request(text, begin, end, who, id)))


def test_one_text_is_enough(spark: SparkSession, world: LiveWorld) -> None:
    found = letters(backtest(spark, world.folder, QUERIES["nearest"], *times(world), at=(9.0, 0.0)))
    assert {letter["event"]["source"] for letter in found["backtest"]} == {"b"}


def test_mistakes_are_found_before_events_are_read(spark: SparkSession, world: LiveWorld) -> None:
    begin, end = times(world)
    with pytest.raises(LaclError):
        backtest(spark, world.folder, {"a": "Select"}, begin, end)
    with pytest.raises(NotFoundError, match="no subscriber 'bob'"):
        backtest(spark, world.folder, QUERIES, begin, end, subscriber="bob")
    with pytest.raises(InputError, match="without time zone"):
        backtest(spark, world.folder, QUERIES, begin.replace(tzinfo=None), end)
    with pytest.raises(InputError, match="no column lacl"):
        backtest(spark, world.folder, spark.range(1), begin, end)
