"""What tasks do equals the definition of a match, for good and bad rows in any batches."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from matching import EventRow, SubscriptionRow, any_event, any_subscription
from profiles import thorough
from pyspark.sql.types import LongType, StructField

from roamcast.spark.rows.events import EventReader
from roamcast.spark.rows.problems import PROBLEM
from roamcast.spark.rows.subscriptions import SubscriptionReader
from roamcast.spark.tasks.index_files import write_index
from roamcast.spark.tasks.match import MatchTask, ResultColumn

EVENTS = EventReader("geographic", 1, ("event", "x", "y", "terms"), point=(1, 2), terms=3, id=None)
SUBSCRIPTIONS = SubscriptionReader(
    "geographic", (StructField("subscription", LongType()),), ("row", *"abcd", "terms"), (1, 2, 3, 4), terms=5, id=None
)
COLUMNS = (ResultColumn("event", True, 0), ResultColumn("subscription", False, 0))


def is_point(x: float, y: float) -> bool:
    return -180 <= x <= 180 and -90 <= y <= 90


def is_good(terms: Sequence[str] | None) -> bool:
    return "" not in (terms or ())


def by_definition(
    events: Sequence[EventRow], subscriptions: Sequence[SubscriptionRow]
) -> list[tuple[int | None, int | None]]:
    """The definition of a match, over the good rows."""
    found: list[tuple[int | None, int | None]] = []
    for e, (x, y, terms) in enumerate(events):
        for s, (min_x, min_y, max_x, max_y, wanted) in enumerate(subscriptions):
            good = is_point(x, y) and is_good(terms) and is_box(min_x, min_y, max_x, max_y) and is_good(wanted)
            in_x = min_x <= x <= max_x if min_x <= max_x else x >= min_x or x <= max_x
            if good and in_x and min_y <= y <= max_y and set(wanted or ()) <= set(terms or ()):
                found.append((e, s))
    return found


def is_box(min_x: float, min_y: float, max_x: float, max_y: float) -> bool:
    return is_point(min_x, min_y) and is_point(max_x, max_y) and min_y <= max_y


def table(rows: Sequence[Sequence[object]], numbers: int) -> pa.Table:
    """Row numbers, as many columns of numbers, and terms."""
    columns = [pa.array([row[n] for row in rows], pa.float64()) for n in range(numbers)]
    terms = pa.array([row[numbers] for row in rows], pa.list_(pa.string()))
    names = [str(n) for n in range(numbers + 2)]
    return pa.table([pa.array(range(len(rows)), pa.int64()), *columns, terms], names)


@thorough()
@given(
    events=st.lists(any_event, max_size=15),
    subscriptions=st.lists(any_subscription, max_size=15),
    batch_rows=st.integers(1, 16),
)
def test_tasks_equal_the_definition(
    events: list[EventRow], subscriptions: list[SubscriptionRow], batch_rows: int
) -> None:
    """Every match of good rows once, and every event that is a bad row once, with its problem."""
    checked = SUBSCRIPTIONS.read(table(subscriptions, 4))
    bad = [n for n, (*box, terms) in enumerate(subscriptions) if not (is_box(*box) and is_good(terms))]
    assert checked.bad_rows["row"].to_pylist() == bad
    with tempfile.TemporaryDirectory() as folder:
        task = MatchTask(EVENTS, write_index(Path(folder), checked), COLUMNS, "collect")
        batches = table(events, 2).to_batches(max_chunksize=batch_rows)
        found = [row for batch in task.run(iter(batches)) for row in batch.to_pylist()]
    matches = [(row["event"], row["subscription"]) for row in found if row[PROBLEM] is None]
    assert sorted(matches) == by_definition(events, subscriptions)
    problems = [row["event"] for row in found if row[PROBLEM] is not None]
    assert sorted(problems) == [n for n, (x, y, terms) in enumerate(events) if not (is_point(x, y) and is_good(terms))]
    assert all(row["subscription"] is None for row in found if row[PROBLEM] is not None)
