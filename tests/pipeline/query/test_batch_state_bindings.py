"""Whole batches of plan bind without Spark, compared with the documented rules."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from batches import Batch, Placed, PureStream, placed
from controls import condition
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, EVENT, REMOVAL, UNBINDING, Record
from roamcast.lacl import holds
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.schemas import EXPIRED_BINDINGS, LAST_SENT

Letters = dict[tuple[str, str], list[tuple[str, str]]]  # by (office, receiver): (subscription, event), in order


def reading(source: str, seq: int, time: int, level: float | None = 1.0, context: str | None = "level") -> Record:
    readings = {} if level is None else {"level": level}
    body = None if context is None else orjson.dumps({"context": context}).decode()
    return Record(EVENT, source, seq, f"{source}:{seq}", time, 0.0, 0.0, (), readings, body)


def bind(
    id: str, source: str, time: int, *, on: str | None = None, every: int | None = None, initial: bool = False
) -> Record:
    body = BindingBody("ann" if id < "b3" else "bob", on and condition(on), every, initial).to_json()
    return Record(BINDING, source, id=id, time=time, body=body)


def unbind(id: str, source: str, time: int) -> Record:
    return Record(UNBINDING, source, id=id, time=time)


def remove(id: str, time: int) -> Record:
    return Record(REMOVAL, "ann", id=id, time=time)


def letters_of(results: Sequence[Batch]) -> Letters:
    found: Letters = defaultdict(list)
    for result in results:
        for office, letters in result.letters.items():
            for row in letters.to_pylist():
                box = found[office, row["receiver"]]
                assert row["number"] == len(box) + 1
                body = orjson.loads(row["body"])
                box.append((body["subscription"], body["event"]["id"]))
    return dict(found)


def run(folder: Path, rows: Sequence[Placed], cuts: Sequence[int] = ()) -> Letters:
    stream = PureStream(folder)
    bounds = [0, *cuts, len(rows)]
    return letters_of([stream.run(rows[a:b]) for a, b in pairwise(bounds)])


def test_a_subscriber_gets_the_events_of_its_current_source(tmp_path: Path) -> None:
    """It is bound to one source after another."""
    rows = placed([
        reading("t1", 1, 5), bind("b1", "t1", 10), reading("t1", 2, 11), reading("t2", 1, 12),
        unbind("b1", "t1", 20), bind("b1", "t2", 20), reading("t1", 3, 21), reading("t2", 2, 22),
        unbind("b1", "t2", 30), reading("t2", 3, 31),
    ])  # fmt: skip
    assert run(tmp_path, rows) == {("local", "ann"): [("b1", "t1:2"), ("b1", "t2:2")]}


def test_a_late_event_matches_the_binding_of_its_time(tmp_path: Path) -> None:
    """Not the binding that is live when it arrives."""
    rows = placed([bind("b1", "t1", 10), unbind("b1", "t1", 20), bind("b3", "t1", 20), reading("t1", 1, 15)])
    assert run(tmp_path, rows, [2]) == {("local", "ann"): [("b1", "t1:1")]}


def test_an_initial_binding_sends_the_newest_event(tmp_path: Path) -> None:
    """The one with the highest sequence number, of this batch or an earlier one."""
    rows = placed([reading("t1", 2, 5), reading("t1", 1, 7), bind("b1", "t1", 10, initial=True), reading("t1", 3, 11)])
    for number, cuts in enumerate([(), (1,), (2,), (3,), (1, 2, 3)]):
        assert run(tmp_path / str(number), rows, cuts) == {("local", "ann"): [("b1", "t1:2"), ("b1", "t1:3")]}


def test_the_last_event_of_a_local_source_comes_when_it_is_bound(tmp_path: Path) -> None:
    """After events of other sources that came before."""
    rows = placed([reading("t1", 1, 5), bind("b1", "t2", 6), reading("t2", 1, 7), bind("b1", "t1", 8, initial=True)])
    for number, cuts in enumerate([(), (1,), (2,), (3,)]):
        assert run(tmp_path / str(number), rows, cuts) == {("local", "ann"): [("b1", "t2:1"), ("b1", "t1:1")]}


def test_repeated_records_change_nothing(tmp_path: Path) -> None:
    """A node that crashed may journal records again: no letter is sent twice, and an ended binding stays ended."""
    changes = [bind("b1", "t1", 10, initial=True), unbind("b1", "t1", 20)]
    rows = placed(
        [reading("t1", 1, 7), *changes, *changes[:1], reading("t1", 2, 15), *changes[1:], reading("t1", 3, 16)]
    )
    for number, cuts in enumerate([(), (3,), (4,), (1, 2, 3, 4, 5)]):
        expected = [("b1", f"t1:{seq}") for seq in (1, 2, 3)]
        assert run(tmp_path / str(number), rows, cuts) == {("local", "ann"): expected}


def test_a_removed_subscription_gets_no_more_letters(tmp_path: Path) -> None:
    """Not even for an event in the time of its binding, if it is journalled after the removal."""
    changes = [bind("b1", "t1", 10), unbind("b1", "t1", 20), bind("b1", "t2", 20), unbind("b1", "t2", 30)]
    rows = placed([*changes, remove("b1", 30), reading("t1", 1, 15), reading("t2", 1, 25)])
    for number, cuts in enumerate([(), (3,), (5,)]):
        assert run(tmp_path / str(number), rows, cuts) == {}


def test_a_new_subscription_with_the_same_name_starts_a_new_period(tmp_path: Path) -> None:
    """And an event with a time in the future does not suppress later ones."""
    old, new = bind("b1", "t1", 10, every=1000), bind("b1", "t1", 50, every=10)
    gone = [unbind("b1", "t1", 40), remove("b1", 40)]
    rows = placed([old, reading("t1", 1, 900), *gone, new, *(reading("t1", 2 + n, 50 + 5 * n) for n in range(3))])
    for number, cuts in enumerate([(), (2,), (3,), (4,), (5, 6)]):
        expected = [("b1", "t1:1"), ("b1", "t1:2"), ("b1", "t1:4")]
        assert run(tmp_path / str(number), rows, cuts) == {("local", "ann"): expected}


@pytest.mark.parametrize("shards", [1, 3])
def test_an_event_that_is_too_late_becomes_a_dead_letter(tmp_path: Path, shards: int) -> None:
    """Once the bindings of its time are deleted. Other events are not affected."""
    stream = PureStream(tmp_path, BatchSettings(binding_history=100, shards=shards))
    first = placed([bind("b1", "t1", 10), unbind("b1", "t1", 20), bind("b1", "t2", 20)])
    stream.run(first)
    # Enough later changes for all parts of the table to be merged.
    changes = [bind(f"b{n}", "t9", 1000 + n) for n in range(2, 12)]
    stream.run(placed(changes, first=4))
    result = stream.run(placed([reading("t1", 1, 15), reading("t1", 2, 25), reading("t2", 1, 25)], first=14))
    assert [(item.offset, item.reason[:16]) for item in result.dead_letters] == [(14, "the event is too")]
    assert letters_of([result]) == {("local", "ann"): [("b1", "t2:1")]}
    assert stream.state.manifest.counters["late"] == 1
    stream.restart()
    result = stream.run(placed([reading("t1", 3, 12), reading("t3", 1, 12)], first=17))
    assert [item.offset for item in result.dead_letters] == [17]


def test_another_history_applies_to_the_batch_after_the_next(tmp_path: Path) -> None:
    """All attempts at a batch delete the same bindings, or they could number letters differently."""
    stream = PureStream(tmp_path, BatchSettings(binding_history=100))
    stream.run(placed([bind("b1", "t1", 10), unbind("b1", "t1", 20), bind("b2", "t2", 20)]))
    changes, deleted = [bind(f"b{n}", "t9", 1000 + n) for n in range(3, 13)], []
    for history in (100, 10**9, None):
        if history is not None:
            stream.settings = BatchSettings(binding_history=history)
            stream.restart()
        result = stream.attempt(placed(changes, first=4)).result
        deleted.append(stream.folder.read_table(result.manifest, EXPIRED_BINDINGS)["source"].to_pylist())
    assert deleted == [["t1"]] * 3
    stream.run(placed(changes, first=4))
    stream.run(placed([unbind("b2", "t2", 1100), *(bind(f"b{n}", "t9", 2000 + n) for n in range(13, 43))], first=14))
    assert stream.folder.read_table(stream.state.manifest, EXPIRED_BINDINGS)["source"].to_pylist() == ["t1"]


def test_nothing_is_kept_of_a_subscription_that_was_removed(tmp_path: Path) -> None:
    """Even if an event of another node comes in the batch of the removal. A later one with its name starts anew."""
    north = placed([bind("b1", "t1@south", 10, every=5), remove("b1", 20)], node="north")
    south = placed([reading("t1", 1, 15), reading("t1", 2, 21)], node="south")
    stream = PureStream(tmp_path)
    assert letters_of([stream.run([*north, *south])]) == {("north", "ann"): [("b1", "t1:1")]}
    sent = stream.folder.read_table(stream.state.manifest, LAST_SENT)
    assert sent["last"].drop_null().to_pylist() == []
    again = placed([remove("b1", 30), bind("b1", "t1@south", 31, every=5)], "north", 3)
    found = stream.run([*again, *placed([reading("t1", 3, 32), reading("t1", 4, 33)], "south", 3)])
    assert [orjson.loads(row["body"])["event"]["id"] for row in found.letters["north"].to_pylist()] == ["t1:3"]
    sent = stream.folder.read_table(stream.state.manifest, LAST_SENT)
    assert sent["last"].drop_null().to_pylist() == [32]


def test_a_source_of_another_node_matches_while_it_is_bound(tmp_path: Path) -> None:
    """By time, since nodes have no common order. A local source with the same name is another source."""
    south = [reading("t1", 1, 5), reading("t1", 2, 15), reading("t1", 3, 25), reading("t1", 4, 18)]
    north = [
        reading("t1", 1, 12), bind("b1", "t1@south", 10, initial=True), unbind("b1", "t1@south", 20),
        bind("b1", "t1", 20), reading("t1", 2, 22),
    ]  # fmt: skip
    rows = [*placed(south[:1], "south"), *placed(north, "north"), *placed(south[1:], "south", first=2)]
    expected = [("b1", "t1:1"), ("b1", "t1:2"), ("b1", "t1:4"), ("b1", "t1:2")]  # the last is north's
    for number, cuts in enumerate([(), (1,), (6,), (6, 8)]):
        found = run(tmp_path / str(number), rows, cuts)
        assert sorted(found["north", "ann"]) == sorted(expected), cuts
        assert found.keys() == {("north", "ann")}


def test_a_removal_applies_to_events_of_other_nodes(tmp_path: Path) -> None:
    """By time: those that were published before may come later."""
    north = placed([bind("b1", "t1@south", 10), remove("b1", 20)], node="north")
    south = placed([reading("t1", 1, 15), reading("t1", 2, 16), reading("t1", 3, 20)], node="south")
    rows = [north[0], south[0], north[1], *south[1:]]
    for number, cuts in enumerate([(), (2,), (3,)]):
        assert run(tmp_path / str(number), rows, cuts) == {("north", "ann"): [("b1", "t1:1"), ("b1", "t1:2")]}


@dataclass
class BindingSpan:
    since: int
    begin: int
    body: BindingBody
    until: int | None = None
    end: int = 0
    final: bool = False


class Interpreter:
    """The documented rules, record by record."""

    def __init__(self) -> None:
        self.spans: dict[tuple[str, str, str], list[BindingSpan]] = defaultdict(list)  # by node, subscription, source
        self.seen: set[tuple[str, str, int]] = set()
        self.newest: dict[tuple[str, str], Record] = {}
        self.last: dict[tuple[str, str], int] = {}
        self.letters: Letters = defaultdict(list)

    def take(self, row: Placed) -> None:
        record, key = row.record, (row.node, str(row.record.id), str(row.record.entity))
        assert record.time is not None
        spans = self.spans[key]
        if record.kind == EVENT:
            self.event(row)
        elif record.kind == BINDING and not (spans and (spans[-1].until is None or record.time <= spans[-1].end)):
            spans.append(BindingSpan(row.offset, record.time, BindingBody.from_json(record.body)))
            newest = self.newest.get((row.node, key[2]))
            if spans[-1].body.initial and newest is not None:
                self.send(row.node, key[1], spans[-1].body, newest)
        elif record.kind == UNBINDING and spans and spans[-1].until is None and record.time >= spans[-1].begin:
            spans[-1].until, spans[-1].end = row.offset, record.time
        elif record.kind == REMOVAL:
            own = [span for name, spans in self.spans.items() if name[:2] == key[:2] for span in spans]
            if all(span.begin <= record.time for span in own):
                self.last.pop(key[:2], None)
                for span in own:
                    span.end = record.time if span.until is None else span.end
                    span.until, span.final = span.until or row.offset, True

    def event(self, row: Placed) -> None:
        record, source = row.record, (row.node, str(row.record.entity))
        assert record.time is not None
        assert record.seq is not None
        if (*source, record.seq) in self.seen:
            return
        self.seen.add((*source, record.seq))
        known = self.newest.get(source)
        if known is None or (known.seq or 0) < record.seq:
            self.newest[source] = record
        for (node, id, name), spans in sorted(self.spans.items()):
            if (node, name) == source:
                for span in spans:
                    if span.begin <= record.time and (
                        span.until is None or (record.time < span.end and not span.final)
                    ):
                        self.send(node, id, span.body, record)

    def send(self, node: str, id: str, body: BindingBody, record: Record) -> None:
        context = orjson.loads(record.body or "{}").get("context")
        if body.on is not None and not holds(body.on, record.readings or {}, context=context):
            return
        assert record.time is not None
        if body.every is not None:
            if abs(record.time - self.last.get((node, id), record.time - body.every)) < body.every:
                return
            self.last[node, id] = record.time
        self.letters[node, body.subscriber].append((id, str(record.id)))


_sources, _ids = st.sampled_from(["t1", "t2"]), st.sampled_from(["b1", "b2", "b3"])
_times = st.integers(1, 12)
_records = st.one_of(
    st.builds(reading, _sources, st.integers(1, 30), _times, st.sampled_from([None, 1.0, 7.0]),
              st.sampled_from([None, "level", "other"])),
    st.builds(bind, _ids, _sources, _times, on=st.sampled_from([None, "@ > 5", "@level < 5 or not @ > 0"]),
              every=st.sampled_from([None, None, 4]), initial=st.booleans()),
    st.builds(unbind, _ids, _sources, _times),
    st.builds(remove, _ids, _times),
)  # fmt: skip
_worlds = st.lists(st.tuples(st.sampled_from(["north", "south"]), _records, st.sampled_from("....|r")), max_size=40)


@given(
    changes=st.lists(
        st.one_of(
            st.builds(bind, _ids, _sources, st.just(0), every=st.sampled_from([None, 3]), initial=st.booleans()),
            st.builds(unbind, _ids, _sources, st.just(0)),
            st.builds(remove, _ids, st.just(0)),
        ),
        max_size=12,
    ),
    again=st.integers(1, 12),
    cut=st.booleans(),
)
def test_repeating_the_last_records_changes_no_letter(changes: list[Record], again: int, cut: bool) -> None:
    """However many are repeated, with events before, between and after."""
    rising = [record._replace(time=10 * number) for number, record in enumerate(changes, 1)]
    events = [reading(f"t{1 + n % 2}", 1 + n // 2, 7 + 5 * n) for n in range(20)]
    before = [record for pair in zip(events, rising, strict=False) for record in pair]
    found = []
    for repeated in ([], rising[-again:]):
        rows = placed([*before, *repeated, *events[len(rising) :]])
        with tempfile.TemporaryDirectory() as folder:
            found.append(run(Path(folder), rows, [len(before)] if cut else []))
    assert found[0] == found[1]


@thorough()
@given(world=_worlds)
def test_letters_equal_those_of_the_rules(world: list[tuple[str, Record, str]]) -> None:
    """For random records of two nodes, however batches are cut and restarted."""
    interpreter = Interpreter()
    offsets = {"north": 0, "south": 0}
    batch: list[Placed] = []
    results = []
    with tempfile.TemporaryDirectory() as folder:
        stream = PureStream(Path(folder))
        for node, record, then in world:
            offsets[node] += 1
            batch.append(Placed(node, offsets[node], record))
            interpreter.take(batch[-1])
            if then != ".":
                results.append(stream.run(batch))
                batch = []
            if then == "r":
                stream.restart()
        results.append(stream.run(batch))
    assert letters_of(results) == dict(interpreter.letters)
    live = sum(spans[-1].until is None for spans in interpreter.spans.values() if spans)
    assert results[-1].result.manifest.counters["bindings"] == live
