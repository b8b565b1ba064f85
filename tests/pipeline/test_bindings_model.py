"""Plan bind through the whole batch, without Spark, against the documented rules; wherever the batches are cut."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough
from pure import Placed, PureStream, placed

from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, EVENT, REMOVAL, UNBINDING, Record
from roamcast.lacl import holds
from roamcast.pipeline.state.batch_state import Entry
from roamcast.pipeline.tasks.event_columns import on_of

Letters = dict[tuple[str, str], list[tuple[str, str]]]  # by (office, receiver): (subscription, event), in order


def reading(source: str, seq: int, time: int, level: float | None = 1.0, context: str | None = "level") -> Record:
    readings = {} if level is None else {"level": level}
    body = None if context is None else orjson.dumps({"context": context}).decode()
    return Record(EVENT, source, seq, f"{source}:{seq}", time, 0.0, 0.0, (), readings, body)


def bind(
    id: str, source: str, time: int, *, on: str | None = None, every: int | None = None, initial: bool = False
) -> Record:
    body = BindingBody("ann" if id < "b3" else "bob", on, every, initial).to_json()
    return Record(BINDING, source, id=id, time=time, body=body)


def unbind(id: str, source: str, time: int) -> Record:
    return Record(UNBINDING, source, id=id, time=time)


def remove(id: str, time: int) -> Record:
    return Record(REMOVAL, "ann", id=id, time=time)


def letters_of(entries: Sequence[Entry]) -> Letters:
    found: Letters = defaultdict(list)
    for entry in entries:
        for office, letters in entry.numbered.letters.items():
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


def test_the_walk(tmp_path: Path) -> None:
    """Bound to one source after another, a subscriber hears each while it is bound to it, and none else."""
    rows = placed([
        reading("t1", 1, 5), bind("b1", "t1", 10), reading("t1", 2, 11), reading("t2", 1, 12),
        unbind("b1", "t1", 20), bind("b1", "t2", 20), reading("t1", 3, 21), reading("t2", 2, 22),
        unbind("b1", "t2", 30), reading("t2", 3, 31),
    ])  # fmt: skip
    assert run(tmp_path, rows) == {("local", "ann"): [("b1", "t1:2"), ("b1", "t2:2")]}


def test_a_late_event_meets_the_binding_of_its_time(tmp_path: Path) -> None:
    """It goes to who was bound when it happened, not to who is bound when it comes."""
    rows = placed([bind("b1", "t1", 10), unbind("b1", "t1", 20), bind("b3", "t1", 20), reading("t1", 1, 15)])
    assert run(tmp_path, rows, [2]) == {("local", "ann"): [("b1", "t1:1")]}


def test_what_was_known_is_told_once_at_the_beginning(tmp_path: Path) -> None:
    """The reading with the highest number comes with the first binding, from this batch or an earlier one."""
    rows = placed([reading("t1", 2, 5), reading("t1", 1, 7), bind("b1", "t1", 10, initial=True), reading("t1", 3, 11)])
    for number, cuts in enumerate([(), (1,), (2,), (3,), (1, 2, 3)]):
        assert run(tmp_path / str(number), rows, cuts) == {("local", "ann"): [("b1", "t1:2"), ("b1", "t1:3")]}


def test_records_that_are_journalled_again_change_nothing(tmp_path: Path) -> None:
    """A node that crashed may do so: no letter comes twice, and an ended binding stays ended."""
    changes = [bind("b1", "t1", 10, initial=True), unbind("b1", "t1", 20)]
    rows = placed(
        [reading("t1", 1, 7), *changes, *changes[:1], reading("t1", 2, 15), *changes[1:], reading("t1", 3, 16)]
    )
    for number, cuts in enumerate([(), (3,), (4,), (1, 2, 3, 4, 5)]):
        expected = [("b1", f"t1:{seq}") for seq in (1, 2, 3)]
        assert run(tmp_path / str(number), rows, cuts) == {("local", "ann"): expected}


def test_a_removed_subscription_gets_nothing_more(tmp_path: Path) -> None:
    """Not even an event that happened while it was bound, if it is journalled after the removal."""
    changes = [bind("b1", "t1", 10), unbind("b1", "t1", 20), bind("b1", "t2", 20), unbind("b1", "t2", 30)]
    rows = placed([*changes, remove("b1", 30), reading("t1", 1, 15), reading("t2", 1, 25)])
    for number, cuts in enumerate([(), (3,), (5,)]):
        assert run(tmp_path / str(number), rows, cuts) == {}


def test_a_period_begins_anew_with_a_new_subscription_of_the_same_name(tmp_path: Path) -> None:
    """And an event from the future does not mute the ones after it."""
    old, new = bind("b1", "t1", 10, every=1000), bind("b1", "t1", 50, every=10)
    gone = [unbind("b1", "t1", 40), remove("b1", 40)]
    rows = placed([old, reading("t1", 1, 900), *gone, new, *(reading("t1", 2 + n, 50 + 5 * n) for n in range(3))])
    for number, cuts in enumerate([(), (2,), (3,), (4,), (5, 6)]):
        expected = [("b1", "t1:1"), ("b1", "t1:2"), ("b1", "t1:4")]
        assert run(tmp_path / str(number), rows, cuts) == {("local", "ann"): expected}


def test_what_is_too_late_is_counted_and_set_aside(tmp_path: Path) -> None:
    """Once ended bindings are forgotten, an event of their time is not guessed at; others go on."""
    stream = PureStream(tmp_path, history=100)
    first = placed([bind("b1", "t1", 10), unbind("b1", "t1", 20), bind("b1", "t2", 20)])
    stream.run(first)
    # Enough changes, long after, for the stack of parts to be merged down to its bottom.
    changes = [bind(f"b{n}", "t9", 1000 + n) for n in range(2, 12)]
    stream.run(placed(changes, first=4))
    entry = stream.run(placed([reading("t1", 1, 15), reading("t1", 2, 25), reading("t2", 1, 25)], first=14))
    assert [(item.offset, item.reason[:16]) for item in entry.set_aside] == [(14, "it came too late")]
    assert letters_of([entry]) == {("local", "ann"): [("b1", "t2:1")]}
    assert stream.books.manifest.counters["late"] == 1
    stream.restart()
    entry = stream.run(placed([reading("t1", 3, 12), reading("t3", 1, 12)], first=17))
    assert [item.offset for item in entry.set_aside] == [17]


def test_a_source_of_another_node_is_heard_while_it_is_bound(tmp_path: Path) -> None:
    """By time: between nodes nothing else tells what was first. One of the same name here is another."""
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


def test_what_is_removed_at_one_node_hears_no_event_of_another(tmp_path: Path) -> None:
    """Not from the batch on that has the removal, whenever it happened."""
    north = placed([bind("b1", "t1@south", 10), remove("b1", 20)], node="north")
    south = placed([reading("t1", 1, 15), reading("t1", 2, 16), reading("t1", 3, 20)], node="south")
    rows = [north[0], south[0], north[1], *south[1:]]
    assert run(tmp_path, rows, [2]) == {("north", "ann"): [("b1", "t1:1")]}


@dataclass
class Bond:
    since: int
    begin: int
    body: BindingBody
    until: int | None = None
    end: int = 0
    final: bool = False


class Interpreter:
    """The documented rules, one record after the other."""

    def __init__(self) -> None:
        self.bonds: dict[tuple[str, str, str], list[Bond]] = defaultdict(list)  # by node, subscription, source
        self.seen: set[tuple[str, str, int]] = set()
        self.newest: dict[tuple[str, str], Record] = {}
        self.last: dict[tuple[str, str], int] = {}
        self.letters: Letters = defaultdict(list)

    def take(self, row: Placed) -> None:
        record, key = row.record, (row.node, str(row.record.id), str(row.record.entity))
        assert record.time is not None
        bonds = self.bonds[key]
        if record.kind == EVENT:
            self.event(row)
        elif record.kind == BINDING and not (bonds and (bonds[-1].until is None or record.time <= bonds[-1].end)):
            bonds.append(Bond(row.offset, record.time, BindingBody.from_json(record.body)))
            newest = self.newest.get((row.node, key[2]))
            if bonds[-1].body.initial and newest is not None:
                self.tell(row.node, key[1], bonds[-1].body, newest)
        elif record.kind == UNBINDING and bonds and bonds[-1].until is None and record.time >= bonds[-1].begin:
            bonds[-1].until, bonds[-1].end = row.offset, record.time
        elif record.kind == REMOVAL:
            own = [bond for name, bonds in self.bonds.items() if name[:2] == key[:2] for bond in bonds]
            if all(bond.begin <= record.time for bond in own):
                self.last.pop(key[:2], None)
                for bond in own:
                    bond.end = record.time if bond.until is None else bond.end
                    bond.until, bond.final = bond.until or row.offset, True

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
        for (node, id, name), bonds in sorted(self.bonds.items()):
            if (node, name) == source:
                for bond in bonds:
                    if bond.begin <= record.time and (
                        bond.until is None or (record.time < bond.end and not bond.final)
                    ):
                        self.tell(node, id, bond.body, record)

    def tell(self, node: str, id: str, body: BindingBody, record: Record) -> None:
        context = orjson.loads(record.body or "{}").get("context")
        if body.on is not None and not holds(on_of(body.on), record.readings or {}, context=context):
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
def test_the_last_records_journalled_again_change_no_letter(changes: list[Record], again: int, cut: bool) -> None:
    """However many of them; events come before, between and after."""
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
def test_equals_an_interpreter_of_the_rules(world: list[tuple[str, Record, str]]) -> None:
    """Random records of two nodes make the letters of the rules, however they are cut into batches and restarted."""
    interpreter = Interpreter()
    offsets = {"north": 0, "south": 0}
    batch: list[Placed] = []
    entries = []
    with tempfile.TemporaryDirectory() as folder:
        stream = PureStream(Path(folder))
        for node, record, then in world:
            offsets[node] += 1
            batch.append(Placed(node, offsets[node], record))
            interpreter.take(batch[-1])
            if then != ".":
                entries.append(stream.run(batch))
                batch = []
            if then == "r":
                stream.restart()
        entries.append(stream.run(batch))
    assert letters_of(entries) == dict(interpreter.letters)
    live = sum(bonds[-1].until is None for bonds in interpreter.bonds.values() if bonds)
    assert entries[-1].manifest.counters["bindings"] == live
