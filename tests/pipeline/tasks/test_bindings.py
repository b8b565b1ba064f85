"""Joining: events meet the bindings of their source that were valid when they happened."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.journal.records import EVENT, Record, to_batch, with_homes
from roamcast.lacl import holds
from roamcast.model import global_name
from roamcast.pipeline.schemas import BINDINGS
from roamcast.pipeline.state.lookups import Lookups
from roamcast.pipeline.state.parts import PartFolder
from roamcast.pipeline.tasks.bindings import join
from roamcast.pipeline.tasks.event_columns import Facts, on_of


class Bond(NamedTuple):
    """A binding that was journalled at `since` and, perhaps, ended at `until`."""

    since: int
    begin: int
    until: int | None = None
    end: int | None = None
    source: str = "cam"
    on: str | None = None
    node: str = "local"
    home: str | None = None

    def row(self) -> dict[str, object]:
        return {**self._asdict(), "home": self.home or self.node, "id": f"b{self.since}", "subscriber": "ann"}

    def counts(self, event: Reading) -> bool:
        """Whether it was valid for an event of its source: by both, or between nodes by time alone."""
        if self.begin > event.time:
            return False
        if self.node != event.node:
            return self.end is None or event.time < self.end
        if self.since >= event.offset:
            return False
        return self.until is None or self.end is None or event.offset < self.until or event.time < self.end


class Reading(NamedTuple):
    """An event at an offset, of a time."""

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


def joined(folder: Path, bonds: Sequence[Sequence[Bond]], events: Sequence[Reading]) -> list[tuple[int, str, int]]:
    """(number of an event, node and place of its binding), as they come; `bonds` has the rows of each part."""
    parts = PartFolder(folder)
    tables = [pa.Table.from_pylist([bond.row() for bond in part], BINDINGS.schema) for part in bonds if part]
    layers = Lookups(folder, BINDINGS.name, [parts.write(BINDINGS, table) for table in tables])
    batch = pa.concat_batches([to_batch("local", 1, [])[:0], *(event.batch() for event in events)])
    found = join(Facts(with_homes(batch)), layers)
    rows = layers.take(found.row, ("node", "since")).to_pylist()
    return [(key, row["node"], row["since"]) for key, row in zip(found.key.tolist(), rows, strict=True)]


OPEN = Bond(since=10, begin=100)
ENDED = Bond(since=10, begin=100, until=20, end=200)


@pytest.mark.parametrize(
    ("bond", "offset", "time", "meets"),
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
        "before the binding", "behind the binding", "older than its begin", "as old as its begin", "for ever",
        "before a binding that ended", "older than the begin of one that ended", "as old as that begin",
        "before the word of its end", "before the word of its end, though younger", "late, just older than its end",
        "late, as old as its end", "late, as old as its begin", "late, older than its begin",
        "no time at all, before the word of it", "no time at all", "less than no time, before the word of it",
        "less than no time",
    ],
)  # fmt: skip
def test_a_binding_counts_from_its_beginning_to_its_end(
    tmp_path: Path, bond: Bond, offset: int, time: int, meets: bool
) -> None:
    """Begin is included and end is not; of what is journalled after an event it sees nothing."""
    assert bool(joined(tmp_path, [[bond]], [Reading(offset, time)])) == meets


@pytest.mark.parametrize(
    ("bond", "time", "meets"), [(OPEN, 99, False), (OPEN, 100, True), (ENDED, 199, True), (ENDED, 200, False)]
)
def test_an_event_that_came_elsewhere_meets_the_bindings_of_its_time(
    tmp_path: Path, bond: Bond, time: int, meets: bool
) -> None:
    """Between nodes there is no order: it sees all that the batch knows of its source's home."""
    event = Reading(1, time, global_name("cam", "local"), node="south")
    assert bool(joined(tmp_path, [[bond]], [event])) == meets


def test_only_the_bindings_of_its_source_are_met(tmp_path: Path) -> None:
    """By the name of the source at its own node."""
    bonds = [Bond(1, 0), Bond(2, 0, source="car"), Bond(3, 0, node="south"), Bond(4, 0)]
    events = [Reading(9, 5), Reading(9, 5, node="south"), Reading(10, 5, "bus"), Reading(11, 5, "car")]
    assert joined(tmp_path, [bonds], events) == [(0, "local", 1), (0, "local", 4), (1, "south", 3), (3, "local", 2)]


def test_the_newest_word_of_a_binding_counts(tmp_path: Path) -> None:
    """It has ended if a later part says so."""
    assert joined(tmp_path, [[OPEN], [ENDED]], [Reading(21, 250), Reading(22, 150)]) == [(1, "local", 10)]


def test_conditions_are_judged_for_each_pair(tmp_path: Path) -> None:
    """Bindings of one source may ask for different things; one without a condition takes all."""
    bonds = [Bond(1, 0, on="@ > 5"), Bond(2, 0), Bond(3, 0, on="@level < 3"), Bond(4, 0, on="@ > 5")]
    events = [Reading(9, 5, level=6), Reading(10, 5, level=1), Reading(11, 5)]
    assert [(event, since) for event, _, since in joined(tmp_path, [bonds], events)] == [
        (0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("bonds", "events"), [([], [Reading(1, 1)]), ([[OPEN]], []), ([[OPEN]], [Reading(1, 1)])])
def test_nothing_to_join_is_nothing(tmp_path: Path, bonds: list[list[Bond]], events: list[Reading]) -> None:
    """Without bindings, without events, and where none is valid."""
    assert joined(tmp_path, bonds, events) == []


_few = st.integers(0, 6)
_nodes, _names = st.sampled_from(["local", "south"]), st.sampled_from(["cam", "car"])


@st.composite
def bonds_of(draw: st.DrawFn) -> list[Bond]:
    places = draw(st.lists(st.tuples(_nodes, _few), max_size=6, unique=True))
    made = []
    for node, since in places:
        until = draw(st.none() | st.integers(since + 1, 8))
        end = None if until is None else draw(_few)
        on = draw(st.sampled_from([None, None, "@ > 1", "@level <= 1", "not @ > 1"]))
        made.append(Bond(since, draw(_few), until, end, draw(_names), on, node, draw(_nodes)))
    return made


_levels = st.sampled_from([None, 0.0, 1.0, 2.0])
_events = st.lists(st.builds(Reading, st.integers(0, 9), _few, _names, _levels, _nodes), max_size=6)


@thorough()
@given(bonds=bonds_of(), events=_events, cut=st.integers(0, 6), said_twice=st.booleans())
def test_equals_looking_at_every_pair(bonds: list[Bond], events: list[Reading], cut: int, said_twice: bool) -> None:
    """Random bindings in two parts, the later one with the ends of some, and random events."""
    expected = [
        (number, bond.node, bond.since)
        for number, event in enumerate(events)
        for bond in bonds
        if (bond.home, bond.source) == (event.node, event.source)
        and bond.counts(event)
        and (
            bond.on is None
            or holds(on_of(bond.on), {} if event.level is None else {"level": event.level}, context="level")
        )
    ]
    earlier = [bond._replace(until=None, end=None) for bond in bonds] if said_twice else bonds[:cut]
    with tempfile.TemporaryDirectory() as folder:
        found = joined(Path(folder), [earlier, bonds if said_twice else bonds[cut:]], events)
    assert sorted(found) == sorted(expected)
    assert [number for number, *_ in found] == sorted(number for number, *_ in found)
