"""Moving regions in whole batches without Spark, compared with the documented rules."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, nan
from pathlib import Path

import numpy as np
import orjson
import pytest
from batches import Placed, PureStream, placed
from controls import condition
from hypothesis import given
from hypothesis import strategies as st
from worlds import NOON, around, event, position, removal, subscription

from roamcast.errors import CorruptionError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import EVENT, POSITION, REMOVAL, SUBSCRIPTION, Record
from roamcast.pipeline.query.batch_state import BatchResult
from roamcast.pipeline.query.takeover import take_over_state
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.space import SPACES

Letters = dict[tuple[str, str], list[tuple[str, str]]]  # by (office, receiver): (subscription, event), in order


def letters_of(results: Sequence[BatchResult]) -> Letters:
    found: Letters = defaultdict(list)
    for result in results:
        for office, letters in result.letters.by_office.items():
            for row in letters.to_pylist():
                body = orjson.loads(row["body"])
                found[office, row["receiver"]].append((body["subscription"], body["event"]["id"]))
    return dict(found)


def run(folder: Path, rows: Sequence[Placed], cuts: Sequence[int] = ()) -> Letters:
    stream = PureStream(folder)
    return letters_of([stream.run(rows[a:b]) for a, b in pairwise([0, *cuts, len(rows)])])


@pytest.mark.parametrize("cuts", [(), (2,), (3,), (4,), (5,), (1, 2, 3, 4, 5)])
def test_an_event_matches_the_region_at_its_offset(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    """The subscriber is at A, then at B; events at A, B and again A make two letters, however batches are cut."""
    rows = placed([
        around("s", "ann"), position("ann", 0), event("cam", 1), position("ann", 5000), event("cam", 2, x=5000),
        event("cam", 3),
    ])  # fmt: skip
    assert run(tmp_path, rows, cuts) == {("local", "ann"): [("s", "cam:1"), ("s", "cam:2")]}


def test_events_of_other_nodes_match_the_last_position(tmp_path: Path) -> None:
    """Between nodes there is no order within a batch."""
    north = placed([around("s", "ann"), position("ann", 0), position("ann", 5000)], "north")
    south = placed([event("cam", 1), event("cam", 2, x=5000)], "south")
    assert run(tmp_path, [*north, *south]) == {("north", "ann"): [("s", "cam:2")]}


def test_without_a_position_nothing_matches(tmp_path: Path) -> None:
    """Until the position of its subscriber is known, a region contains no point."""
    rows = placed([around("s", "ann"), event("cam", 1), position("bob", 0), event("cam", 2), position("ann", 0)])
    assert run(tmp_path, [*rows, *placed([event("cam", 3)], first=6)], [1, 3]) == {("local", "ann"): [("s", "cam:3")]}


def test_an_older_position_is_ignored(tmp_path: Path) -> None:
    """A node that crashed may journal its last positions again."""
    moves = [around("s", "ann"), position("ann", 0, time=NOON), position("ann", 5000, time=NOON + 1)]
    for number, cuts in enumerate([(), (3,), (1, 2, 3, 4)]):
        rows = placed([*moves, *moves[:2], event("cam", 1), event("cam", 2, x=5000)])
        assert run(tmp_path / str(number), rows, cuts) == {("local", "ann"): [("s", "cam:2")]}


def test_the_letter_says_around_whom(tmp_path: Path) -> None:
    """Together with the other conditions."""
    body = SubscriptionBody(None, ("fire",), on=condition("@level > 1"), space="planar", moving_radius=500.0)
    record = around("s", "ann")._replace(body=body.to_json())
    result = PureStream(tmp_path).run(placed([record, position("ann", 0), event("cam", 1, x=400)]))
    (letter,) = result.letters.by_office["local"]["body"].to_pylist()
    assert orjson.loads(letter)["why"] == 'within 500 m of ann, has "fire", @level > 1'


BROKEN = {
    "no subscriber": position("ann", 0)._replace(entity=None),
    "no time": position("ann", 0)._replace(time=None),
    "no point": position("ann", 0)._replace(x=None),
    "no number": position("ann", nan),
    "not in space": position("ann", 0, 91.0),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_an_unusable_position_becomes_a_dead_letter(tmp_path: Path, broken: str) -> None:
    """With the reason; the region stays where it was."""
    result = PureStream(tmp_path).run(
        placed([around("s", "ann", space="geographic"), position("ann", 0), BROKEN[broken], event("cam", 1)])
    )
    assert [(item.offset, item.reason[:10]) for item in result.dead_letters] == [(3, "a position")]
    assert letters_of([result]) == {("local", "ann"): [("s", "cam:1")]}


def test_a_removed_region_leaves_nothing_behind(tmp_path: Path) -> None:
    """In the index and among the positions."""
    stream = PureStream(tmp_path)
    stream.run(placed([around("s", "ann"), around("t", "bob"), position("ann", 0), removal("s", "ann")]))
    stream.run(placed([removal("t", "bob")], first=5))
    stream.run(placed([subscription("u", "eve")], first=6))
    regions, index = stream.folder.open_regions(stream.state.manifest), stream.state.manifest.index
    assert (regions.positions().num_rows, sum(segment.live for segment in index.stack)) == (0, 1)
    assert [len(each) for each in regions._spaces.values()] == [0]


def test_small_steps_write_no_new_segments(tmp_path: Path) -> None:
    """While regions stay in their boxes, only the file with the positions changes."""
    stream = PureStream(tmp_path)
    stream.run(placed([around("s", "ann", 100.0), position("ann", 0)]))
    before = stream.state.manifest
    stream.run(placed([position("ann", 10)], first=3))
    assert stream.state.manifest.index == before.index
    assert stream.state.manifest.moving_regions != before.moving_regions
    stream.run(placed([event("cam", 1)], first=4))
    stream.run(placed([event("cam", 2)], first=5))
    assert {path.stem for path in stream.folder.segments.iterdir()} == {
        *stream.state.manifest.moving_regions.values(), *(segment.segment for segment in before.index.stack)
    }  # fmt: skip


def test_a_missing_file_is_corruption(tmp_path: Path) -> None:
    """Positions are not guessed."""
    stream = PureStream(tmp_path)
    stream.run(placed([around("s", "ann"), position("ann", 0)]))
    (stream.folder.segments / f"{stream.state.manifest.moving_regions['planar']}.segment").unlink()
    with pytest.raises(CorruptionError, match="missing"):
        stream.restart()


def test_a_new_pipeline_takes_over_positions(tmp_path: Path) -> None:
    """With the subscriptions of the earlier one."""
    old = PureStream(tmp_path / "old")
    old.run(placed([around("s", "ann"), around("t", "bob"), position("ann", 5000, time=NOON + 9), removal("t", "bob")]))
    inherited = take_over_state(old.folder.folder)
    assert inherited is not None
    new = PureStream(tmp_path / "other")
    new.folder = StateFolder(tmp_path / "new")
    new.folder.create("new", inherited)
    new.restart()
    result = new.run(placed([position("ann", 0, time=NOON), event("cam", 1, x=5000)]))
    assert letters_of([result]) == {("local", "ann"): [("s", "cam:1")]}


@dataclass(eq=False)
class Region:
    content: tuple[object, ...]
    subscriber: str
    radius: float
    terms: frozenset[str]
    space: str
    where: tuple[float, float] | None = None
    time: int = 0

    def holds(self, record: Record, where: tuple[float, float] | None) -> bool:
        near = where is not None and SPACES[self.space].distance(*where, record.x, record.y) <= self.radius
        return near and self.terms <= set(record.terms or ())


class Interpreter:
    """The documented rules, record by record: by offset within a node, by batch between nodes."""

    def __init__(self) -> None:
        self.live: dict[tuple[str, str], Region] = {}
        self.seen: set[tuple[str, str | None, int | None]] = set()
        self.letters: Letters = defaultdict(list)

    def run(self, rows: Sequence[Placed]) -> None:
        here = [(*name, region) for name, region in self.live.items()]
        events = []
        for row in sorted(rows, key=lambda row: (row.node, row.offset)):
            record, name = row.record, (row.node, str(row.record.id))
            if record.kind == EVENT and (row.node, record.entity, record.seq) not in self.seen:
                self.seen.add((row.node, record.entity, record.seq))
                own = {id: (region, region.where) for (node, id), region in self.live.items() if node == row.node}
                events.append((row, own))
            elif record.kind == REMOVAL:
                self.live.pop(name, None)
            elif record.kind == SUBSCRIPTION:
                body = SubscriptionBody.from_json(record.body)
                content = (record.entity, body)
                if name not in self.live or self.live[name].content != content:
                    assert body.moving_radius is not None
                    new = Region(content, str(record.entity), body.moving_radius, frozenset(body.terms), body.space)
                    self.live[name] = new
                    here.append((*name, new))
            elif record.kind == POSITION:
                self.move(row)
        for row, own in events:
            wanted = {
                (row.node, region.subscriber, id) for id, (region, at) in own.items() if region.holds(row.record, at)
            }
            wanted |= {
                (node, region.subscriber, id)
                for node, id, region in here
                if node != row.node and region.holds(row.record, region.where)
            }
            for node, subscriber, id in sorted(wanted, key=lambda letter: letter[2]):
                self.letters[node, subscriber].append((id, str(row.record.id)))

    def move(self, row: Placed) -> None:
        record = row.record
        assert None not in (record.x, record.y, record.time)
        for (node, _), region in self.live.items():
            good = isfinite(record.x or 0) and SPACES[region.space].bad_points([record.x], [record.y])[0] is None
            if (node, region.subscriber) == (row.node, record.entity) and good and (record.time or 0) >= region.time:
                region.where, region.time = (record.x or 0.0, record.y or 0.0), record.time or 0


_ids, _people = st.sampled_from(["s1", "s2", "s3"]), st.sampled_from(["ann", "bob"])
_x, _y = st.sampled_from([0.0, 1.0, 2.0, 40.0, 179.999, -179.999]), st.sampled_from([0.0, 0.0, 1.0, 90.0])
_terms = st.sets(st.sampled_from(["fire", "ice"]), max_size=1).map(sorted)
_spaces = st.sampled_from(["planar", "geographic"])
_positions = st.builds(position, _people, _x, _y, st.integers(NOON, NOON + 3))
_records = st.one_of(
    st.builds(event, st.sampled_from(["cam", "car"]), st.integers(1, 30), _x, _y, _terms),
    st.builds(event, st.sampled_from(["cam", "car"]), st.integers(1, 30), _x, _y, _terms),
    _positions,
    _positions,
    st.builds(around, _ids, _people, st.sampled_from([0.0, 1.5, 250_000.0]), _terms, _spaces),
    st.builds(removal, _ids, _people),
    st.builds(position, _people, st.just(nan), _y),
    st.builds(position, _people, _x, st.just(91.0), st.just(NOON + 3)),
)
_worlds = st.lists(st.tuples(st.sampled_from(["north", "south"]), _records, st.sampled_from("......|r")), max_size=50)


@given(world=_worlds)
def test_letters_equal_those_of_the_rules(world: list[tuple[str, Record, str]]) -> None:
    """With regions that come, move and go at two nodes, however batches are cut and restarted."""
    interpreter = Interpreter()
    offsets = {"north": 0, "south": 0}
    batch: list[Placed] = []
    results = []
    with tempfile.TemporaryDirectory() as folder:
        stream = PureStream(Path(folder))
        for node, record, then in [*world, ("north", removal("none", "ann"), "|")]:
            offsets[node] += 1
            batch.append(Placed(node, offsets[node], record))
            if then != ".":
                interpreter.run(batch)
                results.append(stream.run(batch))
                batch = []
            if then == "r":
                stream.restart()
    assert letters_of(results) == dict(interpreter.letters)


def test_many_moves_equal_brute_force(tmp_path: Path) -> None:
    """Also where regions leave their boxes, return, and boxes shrink."""
    rng = np.random.default_rng(5)
    people = [f"p{n}" for n in range(60)]
    stream, at = PureStream(tmp_path), 1 + len(people)
    stream.run(placed([around(f"s{n}", who, float(rng.choice([5, 50]))) for n, who in enumerate(people)]))
    where: dict[str, tuple[float, float]] = {}
    radius = {
        row["subscriber"]: row["moving_radius"]
        for row in stream.folder.open_regions(stream.state.manifest)._owners.rows.to_pylist()
    }
    right: Letters = defaultdict(list)
    results, seq = [], 0
    for _ in range(5):
        records = []
        for _ in range(80):
            who, jump = str(rng.choice(people)), float(rng.choice([3.0, 30.0, 3000.0]))
            x, y = np.add(where.get(who, (0.0, 0.0)), rng.normal(0, jump, 2)).tolist()
            where[who] = x, y
            records.append(position(who, x, y))
            near = where[str(rng.choice(list(where)))]
            seq += 1
            x, y = np.add(near, rng.normal(0, 10, 2)).tolist()
            records.append(event("cam", seq, x, y))
            for number, other in enumerate(people):
                if other in where and np.hypot(where[other][0] - x, where[other][1] - y) <= radius[other]:
                    right["local", other].append((f"s{number}", f"cam:{seq}"))
        results.append(stream.run(placed(records, first=at)))
        at += len(records)
    assert letters_of(results) == dict(right)
    assert sum(map(len, right.values())) > 300
