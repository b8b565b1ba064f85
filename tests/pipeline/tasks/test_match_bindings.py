"""Matching events with the bindings of their source."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pytest
from controls import condition
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.journal.bodies import encode_condition
from roamcast.journal.records import EVENT, Record, add_home_column, to_batch
from roamcast.lacl import holds
from roamcast.model import global_name
from roamcast.pipeline.schemas import BINDINGS
from roamcast.pipeline.state.lookups import TableLookup
from roamcast.pipeline.state.parts import PartFolder
from roamcast.pipeline.tasks.event_columns import EventColumns
from roamcast.pipeline.tasks.match import match_bindings


class BindingRow(NamedTuple):
    """A binding that was journalled at `since` and perhaps ended at `until`."""

    since: int
    begin: int
    until: int | None = None
    end: int | None = None
    source: str = "cam"
    on: str | None = None
    node: str = "local"
    home: str | None = None

    def row(self) -> dict[str, object]:
        on = None if self.on is None else encode_condition(condition(self.on))
        return {**self._asdict(), "on": on, "home": self.home or self.node, "id": f"b{self.since}", "subscriber": "ann"}

    def is_valid_for(self, event: Reading) -> bool:
        """Whether it is valid for an event of its source: by offset and time, or between nodes by time alone."""
        if self.begin > event.time:
            return False
        if self.node != event.node:
            return self.end is None or event.time < self.end
        if self.since >= event.offset:
            return False
        return self.until is None or self.end is None or event.offset < self.until or event.time < self.end


class Reading(NamedTuple):
    """An event with an offset and a time."""

    offset: int
    time: int
    source: str = "cam"
    level: float | None = None
    node: str = "local"

    def batch(self) -> pa.RecordBatch:
        readings = None if self.level is None else {"level": self.level}
        body = orjson.dumps({"context": "level"}).decode()
        record = Record(EVENT, self.source, self.offset, "e", self.time, 0.0, 0.0, (), readings, body)
        return to_batch(self.node, self.offset, [record])


def matched(
    folder: Path, bindings: Sequence[Sequence[BindingRow]], events: Sequence[Reading]
) -> list[tuple[int, str, int]]:
    """(index of the event, node and offset of the binding), in their order. `bindings` has the rows of each part."""
    parts = PartFolder(folder)
    tables = [pa.Table.from_pylist([binding.row() for binding in part], BINDINGS.schema) for part in bindings if part]
    lookup = TableLookup(folder, BINDINGS.name, [parts.write(BINDINGS, table) for table in tables])
    batch = pa.concat_batches([to_batch("local", 1, [])[:0], *(event.batch() for event in events)])
    pairs = match_bindings(EventColumns(add_home_column(batch)), lookup)
    rows = lookup.take(pairs.row, ("node", "since")).to_pylist()
    return [(key, row["node"], row["since"]) for key, row in zip(pairs.key.tolist(), rows, strict=True)]


OPEN = BindingRow(since=10, begin=100)
ENDED = BindingRow(since=10, begin=100, until=20, end=200)


@pytest.mark.parametrize(
    ("binding", "offset", "time", "matches"),
    [
        (OPEN, 9, 150, False),
        (OPEN, 11, 150, True),
        (OPEN, 11, 99, False),
        (OPEN, 11, 100, True),
        (OPEN, 10**15, 10**15, True),
        (ENDED, 9, 150, False),
        (ENDED, 11, 99, False),
        (ENDED, 11, 100, True),
        (ENDED, 19, 199, True),
        (ENDED, 19, 200, True),
        (ENDED, 21, 199, True),
        (ENDED, 21, 200, False),
        (ENDED, 21, 100, True),
        (ENDED, 21, 99, False),
        (ENDED._replace(end=100), 15, 100, True),
        (ENDED._replace(end=100), 21, 100, False),
        (ENDED._replace(end=50), 15, 120, True),
        (ENDED._replace(end=50), 21, 120, False),
    ],
    ids=[
        "before the binding", "after the binding", "older than its begin", "as old as its begin", "long after",
        "before a binding that ended", "older than the begin of one that ended", "as old as that begin",
        "before the unbinding", "before the unbinding, though younger", "late, just older than its end",
        "late, as old as its end", "late, as old as its begin", "late, older than its begin",
        "of no duration, before the unbinding", "of no duration", "of negative duration, before the unbinding",
        "of negative duration",
    ],
)  # fmt: skip
def test_a_binding_is_valid_from_begin_to_end(
    tmp_path: Path, binding: BindingRow, offset: int, time: int, matches: bool
) -> None:
    """Begin is included and end is not. Records after the event are not seen."""
    assert bool(matched(tmp_path, [[binding]], [Reading(offset, time)])) == matches


@pytest.mark.parametrize(
    ("binding", "time", "matches"), [(OPEN, 99, False), (OPEN, 100, True), (ENDED, 199, True), (ENDED, 200, False)]
)
def test_an_event_published_elsewhere_matches_the_bindings_of_its_time(
    tmp_path: Path, binding: BindingRow, time: int, matches: bool
) -> None:
    """Nodes have no common order, so all records of the source's home in the batch are seen."""
    event = Reading(1, time, global_name("cam", "local"), node="south")
    assert bool(matched(tmp_path, [[binding]], [event])) == matches


def test_only_bindings_of_the_source_match(tmp_path: Path) -> None:
    """A source is identified by its home and its name."""
    bindings = [BindingRow(1, 0), BindingRow(2, 0, source="car"), BindingRow(3, 0, node="south"), BindingRow(4, 0)]
    events = [Reading(9, 5), Reading(9, 5, node="south"), Reading(10, 5, "bus"), Reading(11, 5, "car")]
    assert matched(tmp_path, [bindings], events) == [(0, "local", 1), (0, "local", 4), (1, "south", 3), (3, "local", 2)]


def test_the_newest_row_of_a_binding_counts(tmp_path: Path) -> None:
    """A later part may end it."""
    assert matched(tmp_path, [[OPEN], [ENDED]], [Reading(21, 250), Reading(22, 150)]) == [(1, "local", 10)]


def test_conditions_are_tested_for_each_pair(tmp_path: Path) -> None:
    """Bindings of one source may have different conditions, or none."""
    bindings = [
        BindingRow(1, 0, on="@ > 5"),
        BindingRow(2, 0),
        BindingRow(3, 0, on="@level < 3"),
        BindingRow(4, 0, on="@ > 5"),
    ]
    events = [Reading(9, 5, level=6), Reading(10, 5, level=1), Reading(11, 5)]
    assert [(event, since) for event, _, since in matched(tmp_path, [bindings], events)] == [
        (0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("bindings", "events"), [([], [Reading(1, 1)]), ([[OPEN]], []), ([[OPEN]], [Reading(1, 1)])])
def test_nothing_matches_without_valid_bindings(
    tmp_path: Path, bindings: list[list[BindingRow]], events: list[Reading]
) -> None:
    """Without bindings, without events, and if no binding is valid."""
    assert matched(tmp_path, bindings, events) == []


_few = st.integers(0, 6)
_nodes, _names = st.sampled_from(["local", "south"]), st.sampled_from(["cam", "car"])


@st.composite
def binding_rows(draw: st.DrawFn) -> list[BindingRow]:
    offsets = draw(st.lists(st.tuples(_nodes, _few), max_size=6, unique=True))
    made = []
    for node, since in offsets:
        until = draw(st.none() | st.integers(since + 1, 8))
        end = None if until is None else draw(_few)
        on = draw(st.sampled_from([None, None, "@ > 1", "@level <= 1", "not @ > 1"]))
        made.append(BindingRow(since, draw(_few), until, end, draw(_names), on, node, draw(_nodes)))
    return made


_levels = st.sampled_from([None, 0.0, 1.0, 2.0])
_events = st.lists(st.builds(Reading, st.integers(0, 9), _few, _names, _levels, _nodes), max_size=6)


@thorough()
@given(bindings=binding_rows(), events=_events, cut=st.integers(0, 6), repeated=st.booleans())
def test_matches_equal_a_test_of_every_pair(
    bindings: list[BindingRow], events: list[Reading], cut: int, repeated: bool
) -> None:
    """For random events, and random bindings in two parts, the later one with the ends of some."""
    expected = [
        (number, binding.node, binding.since)
        for number, event in enumerate(events)
        for binding in bindings
        if (binding.home, binding.source) == (event.node, event.source)
        and binding.is_valid_for(event)
        and (
            binding.on is None
            or holds(condition(binding.on), {} if event.level is None else {"level": event.level}, context="level")
        )
    ]
    earlier = [binding._replace(until=None, end=None) for binding in bindings] if repeated else bindings[:cut]
    with tempfile.TemporaryDirectory() as folder:
        found = matched(Path(folder), [earlier, bindings if repeated else bindings[cut:]], events)
    assert sorted(found) == sorted(expected)
    assert [number for number, *_ in found] == sorted(number for number, *_ in found)
