"""Whole batches of plan match without Spark, compared with the documented rules."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pytest
from batches import Placed, PureStream, control, is_complete, placed
from hypothesis import given
from hypothesis import strategies as st
from peaks import peak_of
from profiles import thorough
from worlds import around, drained, event, forwarded, position, removal, subscription

from roamcast.journal.bodies import RemovalBody, SubscriptionBody
from roamcast.journal.records import DRAINED, EVENT, FORWARDED, REMOVAL, SUBSCRIPTION, Record, to_batch
from roamcast.pipeline.letters.by_source import dedupe_events
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.query.takeover import take_over_state
from roamcast.pipeline.schemas import LAST_SENT, SOURCES, SUBSCRIPTIONS
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.tasks.match import match_records
from roamcast.ranges import Ranges

Letters = dict[tuple[str, str], list[tuple[int, str, str]]]  # by (office, receiver): (number, event, subscription)


def letters_of(numbered: Iterable[Mapping[str, pa.Table]]) -> Letters:
    found: Letters = defaultdict(list)
    for one in numbered:
        for office, letters in one.items():
            for row in letters.to_pylist():
                body = orjson.loads(row["body"])
                found[office, row["receiver"]].append((row["number"], body["event"]["id"], body["subscription"]))
    return dict(found)


def run(folder: Path, *batches: Sequence[Placed]) -> Letters:
    stream = PureStream(folder)
    return letters_of([stream.run(batch).letters for batch in batches])


BEFORE, AFTER = event("cam", 1), event("cam", 2)


@pytest.mark.parametrize("split", [False, True])
def test_an_event_before_its_subscription_does_not_match(tmp_path: Path, split: bool) -> None:
    """In one batch or in two."""
    rows = placed([BEFORE, subscription("s1", "ann"), AFTER])
    batches = [rows[:1], rows[1:]] if split else [rows]
    assert run(tmp_path, *batches) == {("local", "ann"): [(1, "cam:2", "s1")]}


@pytest.mark.parametrize("cuts", [(), (2,), (1, 2), (1, 3)])
def test_an_event_after_a_removal_does_not_match(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    """Events before a removal still become letters, wherever the batches are cut."""
    rows = placed([subscription("s1", "ann"), BEFORE, removal("s1", "ann"), AFTER])
    batches = [rows[a:b] for a, b in zip((0, *cuts), (*cuts, 4), strict=True)]
    assert run(tmp_path, *batches) == {("local", "ann"): [(1, "cam:1", "s1")]}


def test_other_nodes_match_a_subscription_in_its_whole_batch(tmp_path: Path) -> None:
    """Between nodes there is no order within a batch: start and end take effect with it."""
    south = placed([event("cam", n) for n in range(1, 4)], "south")
    north = placed([subscription("s1", "ann"), removal("s1", "ann")], "north")
    found = run(tmp_path, [south[0], north[0]], [south[1], north[1]], [south[2]])
    assert found == {("north", "ann"): [(1, "cam:1", "s1"), (2, "cam:2", "s1")]}


LINK = "west+01234567+0"


@pytest.mark.parametrize("workers", [0, 2])
def test_forwarded_events_match_a_removed_subscription_until_links_are_drained(tmp_path: Path, workers: int) -> None:
    """Those with a time before the removal, whether the region moves or not. A restart changes nothing."""
    stream = PureStream(tmp_path, BatchSettings(workers=workers))
    home = [subscription("s1", "ann"), around("s2", "ann", terms=["fire"]), position("ann", 0.0)]
    home += [removal("s1", "ann", 10), removal("s2", "ann", 10), event("cam", 1), drained(4), drained(5)]
    north = placed(home, "north")
    west = placed([forwarded("car@west", seq) for seq in (1, 2, 3, 12, 4, 5, 6)], LINK)
    batches = [north[:5], [west[0], north[5]], west[1:4], [north[6], west[4]], [north[7], west[5]], west[6:]]
    found = []
    for batch in batches:
        found.append(letters_of([stream.run(batch).letters]))
        stream.restart()
    both = [{("north", "ann"): [(n, f"car@west:{seq}", f"s{id}") for n, seq, id in of]} for of in (
        [(1, 1, 1), (2, 1, 2)], [(3, 2, 1), (4, 2, 2), (5, 3, 1), (6, 3, 2)], [(7, 4, 1), (8, 4, 2)], [(9, 5, 2)],
    )]  # fmt: skip
    assert found == [{}, *both, {}]
    assert stream.state.manifest.index.leaving == ()
    stream.run(placed([subscription("s3", "bob")], "north", 9))
    assert stream.folder.read_table(stream.state.manifest, SUBSCRIPTIONS)["id"].to_pylist() == ["s3"]


def test_nothing_is_kept_of_a_subscription_that_has_left(tmp_path: Path) -> None:
    """Its last letters may come after its removal."""
    stream = PureStream(tmp_path)
    wanted = Record(SUBSCRIPTION, "ann", id="s1", time=1, body=SubscriptionBody(None, (), every=2).to_json())
    north = placed([wanted, removal("s1", "ann", 10), drained(2)], "north")
    west = placed([forwarded("car@west", seq) for seq in (1, 2, 3, 4)], LINK)
    last = []
    for batch in ([north[0], west[0]], [north[1]], west[1:3], [north[2], west[3]]):
        stream.run(batch)
        last.append(stream.folder.read_table(stream.state.manifest, LAST_SENT)["last"].drop_null().to_pylist())
    assert [len(times) for times in last] == [1, 0, 1, 0]
    assert stream.state.manifest.counters["throttled"] == 1


def test_a_takeover_keeps_what_is_not_drained(tmp_path: Path) -> None:
    """A new pipeline goes on with it."""
    old = PureStream(tmp_path / "old")
    old.run(placed([subscription("s1", "ann"), removal("s1", "ann", 10)], "north"))
    inherited = take_over_state(tmp_path / "old")
    assert inherited is not None
    new = PureStream(tmp_path / "new")
    (tmp_path / "other").mkdir()
    new.folder = StateFolder(tmp_path / "other")
    new.folder.create("new", *inherited)
    new.restart()
    first = new.run([*placed([forwarded("car@west", 1)], LINK), *placed([event("cam", 1)], "north", 3)])
    assert letters_of([first.letters]) == {("north", "ann"): [(1, "car@west:1", "s1")]}
    new.run(placed([drained(1)], "north", 4))  # it is not about the removal, which had offset 2
    second = new.run(placed([forwarded("car@west", 2)], LINK, 2))
    assert letters_of([second.letters]) == {("north", "ann"): [(2, "car@west:2", "s1")]}
    new.run(placed([drained(4)], "north", 5))
    assert new.run(placed([forwarded("car@west", 3)], LINK, 3)).letters == {}


def test_a_removal_that_is_drained_in_its_batch_has_its_time(tmp_path: Path) -> None:
    """The pipeline was down for a while: later events are in the batch, too."""
    north = placed([subscription("s1", "ann"), removal("s1", "ann", 10), drained(2)], "north")
    west = placed([forwarded("car@west", 1), forwarded("car@west", 12)], LINK)
    assert run(tmp_path, [*north, *west]) == {("north", "ann"): [(1, "car@west:1", "s1")]}


def test_a_recreated_subscription_gets_an_event_of_another_node_once(tmp_path: Path) -> None:
    """However often it changes within a batch, an event is one letter."""
    changes = [subscription("s1", "ann"), removal("s1", "ann"), subscription("s1", "ann", None)]
    found = run(tmp_path, [*placed(changes, "north"), *placed([event("cam", 1)], "south")])
    assert found == {("north", "ann"): [(1, "cam:1", "s1")]}


def test_candidates_are_tested_in_portions(tmp_path: Path) -> None:
    """A batch with millions of candidates takes little more memory than its matches."""
    before, after, wanted = 3_990, 10, 1_000
    happened = [event("cam", n) for n in range(1, before + after + 1)]
    rows = placed([*happened[:before], *(subscription(f"s{n}", "ann") for n in range(wanted)), *happened[before:]])
    stream = PureStream(tmp_path)
    prepared = stream.state.prepare(control(rows), 0)
    batch = to_batch("local", 1, [row.record for row in rows])
    list(match_records(prepared.context)(iter([batch.slice(before)])))
    (matched,), peak = peak_of(lambda: list(match_records(prepared.context)(iter([batch]))))
    assert [len(rows) for rows in matched["subscriptions"].to_pylist()] == [0] * before + [wanted] * after
    assert sum(matched["postings_scanned"].to_pylist()) >= (before + after) * wanted
    assert peak < 150_000_000


def test_an_event_without_match_makes_no_letter(tmp_path: Path) -> None:
    """It is outside the box, or lacks the term."""
    rows = [subscription("s1", "ann"), event("cam", 1, x=1.5), event("cam", 2, terms=["ice"])]
    assert run(tmp_path, placed(rows)) == {}


def test_of_duplicates_at_two_nodes_the_first_is_kept(tmp_path: Path) -> None:
    """Also in one Arrow batch: the newest event of a source is the copy that counts."""
    copies = [to_batch("south", 3, [event("cam@north", 7)]), to_batch("north", 9, [event("cam", 7)])]
    stream = PureStream(tmp_path)
    prepared = stream.state.prepare(control([]), 0)
    (matched,) = match_records(prepared.context)(iter([pa.concat_batches(copies)]))
    fresh = dedupe_events(pa.Table.from_batches([matched]), {}).fresh.to_pylist()
    assert [(row["node"], orjson.loads(row["event"])["source"]) for row in fresh] == [("north", "cam")]


def test_a_letter_carries_the_whole_event(tmp_path: Path) -> None:
    """Absent terms and readings are empty ones; times are ISO 8601 in UTC."""
    bare = event("cam", 1)._replace(terms=None, readings=None, time=0)
    numbered = PureStream(tmp_path).run(placed([subscription("s1", "ann", terms=()), bare])).letters
    assert orjson.loads(numbered["local"]["body"][0].as_py())["event"] == {
        "id": "cam:1", "source": "cam", "seq": 1, "time": "1970-01-01T00:00:00+00:00",
        "x": 0.0, "y": 0.0, "terms": [], "readings": {},
    }  # fmt: skip


class Interest(NamedTuple):
    """A subscription as the interpreter keeps it."""

    subscriber: str
    box: tuple[float, float, float, float] | None
    terms: frozenset[str]

    def matches(self, record: Record) -> bool:
        assert record.x is not None
        assert record.y is not None
        inside = self.box is None or (self.box[0] <= record.x <= self.box[2] and self.box[1] <= record.y <= self.box[3])
        return inside and self.terms <= set(record.terms or ())


class Leaving(NamedTuple):
    """A removed subscription that forwarded events may still match."""

    node: str
    until: int
    before: int
    id: str
    interest: Interest


class Interpreter:
    """The documented rules, record by record: by offset within a node, by batch between nodes."""

    def __init__(self) -> None:
        self.live: dict[tuple[str, str], Interest] = {}
        self.leaving: list[Leaving] = []
        self.seen: set[tuple[str, str, int | None]] = set()
        self.letters: Letters = defaultdict(list)

    def run(self, rows: Sequence[Placed]) -> None:
        versions = [(name, interest) for name, interest in self.live.items()]
        leaving, over = list(self.leaving), dict[tuple[str, str], list[Interest]]()
        own: list[tuple[Placed, dict[tuple[str, str], Interest]]] = []
        for row in sorted(rows, key=lambda row: (row.node, row.offset)):
            record = row.record
            name = row.node, str(record.id)
            source, _, home = str(record.entity).partition("@")
            copy = home or row.node, source, record.seq
            is_copy = record.kind == EVENT and copy in self.seen  # a link brings each event once
            if record.kind in (EVENT, FORWARDED) and is_complete(record) and not is_copy:
                self.seen |= {copy} if record.kind == EVENT else set()
                own.append((row, {n: interest for n, interest in self.live.items() if n[0] == row.node}))
            elif record.kind == REMOVAL:
                interest = self.live.pop(name, None)
                if interest is not None and record.body is not None:
                    before = RemovalBody.from_json(record.body).forwarded_until
                    leaving.append(Leaving(row.node, row.offset, before, name[1], interest))
                    self.leaving.append(leaving[-1])
                    over.setdefault(name, []).append(interest)
            elif record.kind == DRAINED:
                through = record.seq or 0
                self.leaving = [each for each in self.leaving if each.node != row.node or each.until > through]
            elif record.kind == SUBSCRIPTION and record.body:
                body = orjson.loads(record.body)
                interest = Interest(str(record.entity), body["box"] and tuple(body["box"]), frozenset(body["terms"]))
                if self.live.get(name) != interest:
                    versions.append((name, interest))
                self.live[name] = interest
        for row, at_its_time in own:
            others = [(name, interest) for name, interest in versions if name[0] != row.node]
            if row.record.kind == FORWARDED:
                for name, interests in over.items():
                    for interest in interests:
                        others.remove((name, interest))
                time = row.record.time or 0
                others += [((each.node, each.id), each.interest) for each in leaving if time < each.before]
            wanted = {
                (node, interest.subscriber, id_)
                for (node, id_), interest in [*at_its_time.items(), *others]
                if interest.matches(row.record)
            }
            for node, subscriber, id_ in sorted(wanted, key=lambda letter: letter[2]):
                box = self.letters[node, subscriber]
                box.append((len(box) + 1, str(row.record.id), id_))


_terms = st.sets(st.sampled_from(["fire", "ice"]), max_size=2).map(sorted)
_boxes = st.sampled_from([None, (-1, -1, 1, 1), (0, 0, 9, 9), (0, 0, 0, 0)])
_ids, _people = st.sampled_from(["s1", "s2", "s3"]), st.sampled_from(["ann", "bob"])
_points = st.sampled_from([0.0, 1.0, 5.0, -1.0])
_events = st.builds(event, st.sampled_from(["cam", "car", "cam@north"]), st.integers(0, 9), _points, _points, _terms)
_records = st.one_of(
    _events,
    _events,
    st.builds(subscription, _ids, _people, _boxes, _terms),
    st.builds(removal, _ids, _people, st.sampled_from([None, None, 4, 100])),
    st.builds(drained, st.integers(0, 30)),
    st.just(Record(SUBSCRIPTION, "ann", id="s1", body=None)),
)
_forwarded = st.builds(forwarded, st.just("car@west"), st.integers(0, 9), _points, _points, _terms)
_rows = st.one_of(st.tuples(st.sampled_from(["north", "south"]), _records), st.tuples(st.just(LINK), _forwarded))
_batches = st.lists(st.lists(_rows, max_size=14), max_size=4)


@thorough()
@given(batches=_batches, seed=st.integers(0, 2**16))
def test_letters_equal_those_of_the_rules(batches: list[list[tuple[str, Record]]], seed: int) -> None:
    """For random records of two nodes in several batches, in random order."""
    shuffle = random.Random(seed)
    interpreter = Interpreter()
    offsets = {"north": 0, "south": 0, LINK: 0}
    with tempfile.TemporaryDirectory() as folder:
        stream = PureStream(Path(folder))
        numbered = []
        for batch in batches:
            rows = []
            for node, record in batch:
                offsets[node] += 1
                if record.kind == DRAINED:  # it is about earlier records
                    record = record._replace(seq=min(record.seq or 0, offsets[node] - 1))
                rows.append(Placed(node, offsets[node], record))
            interpreter.run(rows)
            numbered.append(stream.run(shuffle.sample(rows, len(rows))).letters)
        sources = stream.folder.read_table(stream.state.manifest, SOURCES)
    assert letters_of(numbered) == dict(interpreter.letters)
    assert stream.state.manifest.counters.get("subscriptions", 0) == len(interpreter.live)
    assert len(stream.state.manifest.index.leaving) == len(interpreter.leaving)
    assert sum(len(Ranges.from_text(text)) for text in sources["seen"].to_pylist()) == len(interpreter.seen)
