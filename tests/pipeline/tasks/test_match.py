"""Intake, matching and numbering together, without Spark, against the documented rules."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peaks import peak_of
from profiles import thorough
from pure import Placed, PureStream, control, is_whole, placed
from worlds import event, removal, subscription

from roamcast.journal.records import EVENT, REMOVAL, SUBSCRIPTION, Record, to_batch
from roamcast.pipeline.letters.dedupe import take_in
from roamcast.pipeline.letters.numbers import Numbered
from roamcast.pipeline.tasks.match import sift

Letters = dict[tuple[str, str], list[tuple[int, str, str]]]  # by (office, receiver): (number, event, subscription)


def letters_of(numbered: Iterable[Numbered]) -> Letters:
    found: Letters = defaultdict(list)
    for one in numbered:
        for office, letters in one.letters.items():
            for row in letters.to_pylist():
                body = orjson.loads(row["body"])
                found[office, row["receiver"]].append((row["number"], body["event"]["id"], body["subscription"]))
    return dict(found)


def run(folder: Path, *batches: Sequence[Placed]) -> Letters:
    stream = PureStream(folder)
    return letters_of([stream.run(batch).numbered for batch in batches])


BEFORE, AFTER = event("cam", 1), event("cam", 2)


@pytest.mark.parametrize("split", [False, True])
def test_only_what_comes_later_is_matched(tmp_path: Path, split: bool) -> None:
    """An event before its subscription makes no letter, in one batch or in two."""
    rows = placed([BEFORE, subscription("s1", "ann"), AFTER])
    batches = [rows[:1], rows[1:]] if split else [rows]
    assert run(tmp_path, *batches) == {("local", "ann"): [(1, "cam:2", "s1")]}


@pytest.mark.parametrize("cuts", [(), (2,), (1, 2), (1, 3)])
def test_what_comes_after_a_removal_is_not_matched(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    """Events before a removal still become letters, wherever the batches are cut."""
    rows = placed([subscription("s1", "ann"), BEFORE, removal("s1", "ann"), AFTER])
    batches = [rows[a:b] for a, b in zip((0, *cuts), (*cuts, 4), strict=True)]
    assert run(tmp_path, *batches) == {("local", "ann"): [(1, "cam:1", "s1")]}


def test_other_nodes_see_a_subscription_in_all_of_its_batch(tmp_path: Path) -> None:
    """Between nodes there is no order finer than the batch: beginning and end take effect with it."""
    south = placed([event("cam", n) for n in range(1, 4)], "south")
    north = placed([subscription("s1", "ann"), removal("s1", "ann")], "north")
    found = run(tmp_path, [south[0], north[0]], [south[1], north[1]], [south[2]])
    assert found == {("north", "ann"): [(1, "cam:1", "s1"), (2, "cam:2", "s1")]}


def test_a_subscription_made_anew_gets_an_event_of_another_node_once(tmp_path: Path) -> None:
    """However often it changes within a batch, an event is one letter."""
    changes = [subscription("s1", "ann"), removal("s1", "ann"), subscription("s1", "ann", None)]
    found = run(tmp_path, [*placed(changes, "north"), *placed([event("cam", 1)], "south")])
    assert found == {("north", "ann"): [(1, "cam:1", "s1")]}


def test_candidates_take_memory_for_a_portion_of_them(tmp_path: Path) -> None:
    """Where an Arrow batch has millions, it takes little more than those that match."""
    before, after, wanted = 3_990, 10, 1_000
    happened = [event("cam", n) for n in range(1, before + after + 1)]
    rows = placed([*happened[:before], *(subscription(f"s{n}", "ann") for n in range(wanted)), *happened[before:]])
    stream = PureStream(tmp_path)
    page = stream.books.open(control(rows), 0)
    batch = to_batch("local", 1, [row.record for row in rows])
    list(sift(page.sieve)([batch.slice(before)]))
    (sifted,), peak = peak_of(lambda: list(sift(page.sieve)([batch])))
    assert [len(found) for found in sifted["subscriptions"].to_pylist()] == [0] * before + [wanted] * after
    assert sum(sifted["candidates"].to_pylist()) >= (before + after) * wanted
    assert peak < 150_000_000


def test_an_event_that_nobody_wants_is_no_letter(tmp_path: Path) -> None:
    """Outside the box, or without the term, nothing is sent."""
    rows = [subscription("s1", "ann"), event("cam", 1, x=1.5), event("cam", 2, terms=["ice"])]
    assert run(tmp_path, placed(rows)) == {}


def test_of_copies_at_two_nodes_the_one_that_counts_is_told(tmp_path: Path) -> None:
    """In one Arrow batch too: what is known of a source later is its newest event, wherever it came first."""
    copies = [to_batch("south", 3, [event("cam@north", 7)]), to_batch("north", 9, [event("cam", 7)])]
    stream = PureStream(tmp_path)
    page = stream.books.open(control([]), 0)
    (sifted,) = sift(page.sieve)([pa.concat_batches(copies)])
    fresh = take_in(pa.Table.from_batches([sifted]), {}).fresh.to_pylist()
    assert [(row["node"], orjson.loads(row["event"])["source"]) for row in fresh] == [("north", "cam")]


def test_a_letter_carries_the_whole_event(tmp_path: Path) -> None:
    """Absent terms and readings are empty ones; times are ISO 8601 in UTC."""
    bare = event("cam", 1)._replace(terms=None, readings=None, time=0)
    numbered = PureStream(tmp_path).run(placed([subscription("s1", "ann", terms=()), bare])).numbered
    assert orjson.loads(numbered.letters["local"]["body"][0].as_py())["event"] == {
        "id": "cam:1", "source": "cam", "seq": 1, "time": "1970-01-01T00:00:00+00:00",
        "x": 0.0, "y": 0.0, "terms": [], "readings": {},
    }  # fmt: skip


class Wish(NamedTuple):
    """A subscription as the interpreter keeps it."""

    subscriber: str
    box: tuple[float, float, float, float] | None
    terms: frozenset[str]

    def wants(self, record: Record) -> bool:
        assert record.x is not None
        assert record.y is not None
        inside = self.box is None or (self.box[0] <= record.x <= self.box[2] and self.box[1] <= record.y <= self.box[3])
        return inside and self.terms <= set(record.terms or ())


class Interpreter:
    """The documented rules, one record after the other: order inside a node, batches between nodes."""

    def __init__(self) -> None:
        self.live: dict[tuple[str, str], Wish] = {}
        self.seen: set[tuple[str, str, int | None]] = set()
        self.letters: Letters = defaultdict(list)

    def run(self, rows: Sequence[Placed]) -> None:
        versions = {name: [wish] for name, wish in self.live.items()}
        own: list[tuple[Placed, dict[tuple[str, str], Wish]]] = []
        for row in sorted(rows, key=lambda row: (row.node, row.offset)):
            record = row.record
            name = row.node, str(record.id)
            source, _, home = str(record.entity).partition("@")
            copy = home or row.node, source, record.seq
            if record.kind == EVENT and is_whole(record) and copy not in self.seen:
                self.seen.add(copy)
                own.append((row, {n: wish for n, wish in self.live.items() if n[0] == row.node}))
            elif record.kind == REMOVAL:
                self.live.pop(name, None)
            elif record.kind == SUBSCRIPTION and record.body:
                body = orjson.loads(record.body)
                wish = Wish(str(record.entity), body["box"] and tuple(body["box"]), frozenset(body["terms"]))
                self.live[name] = wish
                versions.setdefault(name, []).append(wish)
        for row, at_its_time in own:
            others = [(name, wish) for name, wishes in versions.items() if name[0] != row.node for wish in wishes]
            wanted = {
                (node, wish.subscriber, id_)
                for (node, id_), wish in [*at_its_time.items(), *others]
                if wish.wants(row.record)
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
    st.builds(removal, _ids, _people),
    st.just(Record(SUBSCRIPTION, "ann", id="s1", body=None)),
)
_batches = st.lists(st.lists(st.tuples(st.sampled_from(["north", "south"]), _records), max_size=14), max_size=4)


@thorough()
@given(batches=_batches, seed=st.integers(0, 2**16))
def test_equals_an_interpreter_of_the_rules(batches: list[list[tuple[str, Record]]], seed: int) -> None:
    """Random records over two nodes and several batches, handed over in random order, make the letters of the rules."""
    shuffle = random.Random(seed)
    interpreter = Interpreter()
    offsets = {"north": 0, "south": 0}
    with tempfile.TemporaryDirectory() as folder:
        stream = PureStream(Path(folder))
        numbered = []
        for batch in batches:
            rows = []
            for node, record in batch:
                offsets[node] += 1
                rows.append(Placed(node, offsets[node], record))
            interpreter.run(rows)
            numbered.append(stream.run(shuffle.sample(rows, len(rows))).numbered)
    assert letters_of(numbered) == dict(interpreter.letters)
    assert stream.books.manifest.counters.get("subscriptions", 0) == len(interpreter.live)
    assert sum(len(ranges) for ranges in stream.books.seen.values()) == len(interpreter.seen)
