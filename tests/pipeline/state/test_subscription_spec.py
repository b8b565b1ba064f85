"""Asked: a query is read when its subscription is made, and not again for any event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from worlds import NOON

from roamcast import lacl
from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import EVENT, Record, to_batch
from roamcast.lacl import Query
from roamcast.model import Box
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state import subscription_spec as asked
from roamcast.pipeline.state.subscription_spec import asked_of, why_matched
from roamcast.pipeline.tasks import event_columns as facts
from roamcast.pipeline.tasks.event_columns import Facts, area_of, on_of, source_of
from roamcast.pipeline.tasks.exact import passes

AREA = '{"type":"Polygon","coordinates":[[[0,0],[4,0],[0,4],[0,0]]]}'
PLACE = 'Select all() Where &location in within("p")'


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is parsed."""
    texts: list[str] = []

    def counted(text: str, *more: Any) -> Query:
        texts.append(text)
        return lacl.parse(text, *more)

    for module in (asked, facts):
        monkeypatch.setattr(module, "parse", counted)
    for kept in (asked._further, on_of, source_of, area_of):
        kept.cache_clear()
    return texts


def rows_of(*bodies: SubscriptionBody) -> pa.Table:
    rows = [{"subscriber": "ann", **asked_of(body.to_json())._asdict()} for body in bodies]
    return pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema)


def near(radius: float) -> SubscriptionBody:
    text = f"Select all() Where &location in circle(0, 0, {radius}) and &owner = bob\nOn @level > 1"
    return SubscriptionBody(Box(-9, -9, 9, 9), (), text, space="planar")


def inside(number: int) -> SubscriptionBody:
    return SubscriptionBody(Box(0, 0, 4, 4), (), f"{PLACE}\nOn @level > {number}", AREA, space="planar")


def event(x: float, level: float) -> pa.RecordBatch:
    return to_batch("n", 1, [Record(EVENT, "cam", 1, "e", NOON, x, 0.0, [], {"level": level}, '{"owner":"bob"}')])


def test_what_is_asked_is_taken_apart(read: list[str]) -> None:
    """Circle, source and readings are columns of their own."""
    row = asked_of(near(5).to_json())
    assert (row.circle, row.source, row.on, row.place, row.area) == (
        [0, 0, 5],
        "&owner = bob",
        "@level > 1",
        None,
        None,
    )


def test_subscriptions_that_differ_in_their_circle_share_their_conditions(read: list[str]) -> None:
    """However many are tested, each condition is read once, and no query."""
    rows = rows_of(*(near(radius) for radius in range(1, 41)))
    assert len(read) == 40
    events, pairs = np.zeros(40, np.int64), np.arange(40)
    assert passes(Facts(event(20, 5)), events, rows, pairs).sum() == 21
    assert passes(Facts(event(30, 5)), events, rows, pairs).sum() == 11
    assert len(read) == 42


def test_an_area_is_prepared_once(read: list[str]) -> None:
    """Whatever else its subscriptions ask for."""
    rows = rows_of(*(inside(number) for number in range(20)))
    assert passes(Facts(event(1, 9.5)), np.zeros(20, np.int64), rows, np.arange(20)).sum() == 10
    assert area_of.cache_info().misses == 1


def test_why_is_said_without_reading_a_query(read: list[str]) -> None:
    """The row has all that is said."""
    rows = rows_of(near(5), inside(1)).to_pylist()
    read.clear()
    assert [why_matched(row) for row in rows] == [
        "in circle(0, 0, 5), &owner = bob, @level > 1", 'in within("p"), @level > 1',
    ]  # fmt: skip
    assert read == []
