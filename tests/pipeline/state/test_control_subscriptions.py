"""Subscription specs: the columns of a subscription, and what is decoded for a match."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Never

import numpy as np
import pyarrow as pa
import pytest
from controls import condition
from worlds import NOON

from roamcast.journal.bodies import SubscriptionBody, decode_condition, encode_condition
from roamcast.journal.records import EVENT, Record, to_batch
from roamcast.lacl import parse
from roamcast.model import Box
from roamcast.pipeline.letters.descriptions import describe_match
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state.control import SubscriptionSpec, parse_area
from roamcast.pipeline.tasks.event_columns import EventColumns, satisfy_subscriptions

AREA = '{"type":"Polygon","coordinates":[[[0,0],[4,0],[0,4],[0,0]]]}'
OWNER = parse("Select all() Where &owner = bob").where
LEVEL = condition("@level > 1")


@pytest.fixture(autouse=True)
def empty_caches() -> None:
    for function in (decode_condition, parse_area):
        function.cache_clear()


@pytest.fixture
def forbid_parsing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after whose call no LACL can be parsed."""

    def fail() -> Never:
        raise AssertionError("LACL was parsed")

    return lambda: monkeypatch.setattr(sys.modules["roamcast.lacl.parse"], "_parser", fail)


def rows_of(*bodies: SubscriptionBody) -> pa.Table:
    rows = [{"subscriber": "ann", **SubscriptionSpec.from_body(body.to_json())._asdict()} for body in bodies]
    return pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema)


def near(radius: float) -> SubscriptionBody:
    return SubscriptionBody(Box(-9, -9, 9, 9), (), circle=(0.0, 0.0, radius), source=OWNER, on=LEVEL, space="planar")


def inside(level: int) -> SubscriptionBody:
    return SubscriptionBody(
        Box(0, 0, 4, 4), (), place="p", area=AREA, on=condition(f"@level > {level}"), space="planar"
    )


def event(x: float, level: float) -> pa.RecordBatch:
    return to_batch("n", 1, [Record(EVENT, "cam", 1, "e", NOON, x, 0.0, [], {"level": level}, '{"owner":"bob"}')])


def test_each_part_of_a_subscription_is_a_column() -> None:
    """Circle, source and readings; conditions are encoded."""
    spec = SubscriptionSpec.from_body(near(5).to_json())
    assert (spec.circle, spec.place, spec.area) == ([0, 0, 5], None, None)
    assert (spec.source, spec.on) == (encode_condition(OWNER), encode_condition(LEVEL))


def test_subscriptions_that_differ_in_their_circle_share_their_conditions(forbid_parsing: Callable[[], None]) -> None:
    """However many are tested, each condition is decoded once, and no query is parsed."""
    forbid_parsing()
    rows = rows_of(*(near(radius) for radius in range(1, 41)))
    decode_condition.cache_clear()
    events, pairs = np.zeros(40, np.int64), np.arange(40)
    assert satisfy_subscriptions(EventColumns(event(20, 5)), events, rows, pairs).sum() == 21
    assert satisfy_subscriptions(EventColumns(event(30, 5)), events, rows, pairs).sum() == 11
    assert decode_condition.cache_info().misses == 2


def test_an_area_is_prepared_once(forbid_parsing: Callable[[], None]) -> None:
    """Whatever other conditions its subscriptions have; no query is parsed."""
    bodies = [inside(level) for level in range(20)]
    forbid_parsing()
    rows = rows_of(*bodies)
    truths = satisfy_subscriptions(EventColumns(event(1, 9.5)), np.zeros(20, np.int64), rows, np.arange(20))
    assert truths.sum() == 10
    assert parse_area.cache_info().misses == 1


def test_a_match_is_described_in_lacl(forbid_parsing: Callable[[], None]) -> None:
    """Region, terms and conditions, without parsing a query."""
    bodies = near(5), inside(1)
    forbid_parsing()
    rows = rows_of(*bodies).to_pylist()
    assert [describe_match(row) for row in rows] == [
        "in circle(0, 0, 5), &owner = bob, @level > 1", 'in within("p"), @level > 1',
    ]  # fmt: skip


def test_parsing_can_be_forbidden(forbid_parsing: Callable[[], None]) -> None:
    """Otherwise the tests above would show nothing."""
    forbid_parsing()
    with pytest.raises(AssertionError, match="parsed"):
        parse("Select all() Where &owner = bob")
