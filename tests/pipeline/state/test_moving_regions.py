"""Moving regions in whole batches without Spark, compared with the documented rules."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite, nan
from pathlib import Path

import numpy as np
import orjson
import pytest
from batches import Batch, Placed, PureStream, placed
from controls import condition
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough
from worlds import NOON, around, drained, event, forwarded, position, removal, subscription

from roamcast.errors import CorruptionError
from roamcast.journal.bodies import PositionBody, RemovalBody, SubscriptionBody
from roamcast.journal.records import DRAINED, EVENT, FORWARDED, POSITION, REMOVAL, SUBSCRIPTION, Record
from roamcast.match.index import earlier_positions
from roamcast.model import BEFORE_ALL, NO_END
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.query.takeover import take_over_state
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.state.partitioning import PARTITIONERS, PartitioningSettings
from roamcast.space import SPACES

Letters = dict[tuple[str, str], list[tuple[str, str]]]  # by (office, receiver): (subscription, event), in order


def letters_of(results: Sequence[Batch]) -> Letters:
    found: Letters = defaultdict(list)
    for result in results:
        for office, letters in result.letters.items():
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
    (letter,) = result.letters["local"]["body"].to_pylist()
    assert orjson.loads(letter)["why"] == 'within 500 m of ann, has "fire", @level > 1'


BROKEN = {
    "no subscriber": position("ann", 0)._replace(entity=None),
    "no time": position("ann", 0)._replace(time=None),
    "no point": position("ann", 0)._replace(x=None),
    "no number": position("ann", nan),
    "not in space": position("ann", 0, 91.0),
    "another body": position("ann", 0)._replace(body='{"version":2,"begin":1}'),
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
    assert (len(regions), sum(segment.live for segment in index.stack)) == (0, 1)
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
    (files,) = stream.state.manifest.moving_regions
    assert {path.stem for path in stream.folder.segments.iterdir()} == {
        files.version, *(segment.segment for segment in before.index.stack)
    }  # fmt: skip


def test_a_missing_file_is_corruption(tmp_path: Path) -> None:
    """Positions are not guessed."""
    stream = PureStream(tmp_path)
    stream.run(placed([around("s", "ann"), position("ann", 0)]))
    (stream.folder.segments / f"{stream.state.manifest.moving_regions[0].version}.segment").unlink()
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
    new.folder.create("new", *inherited)
    new.restart()
    result = new.run(placed([position("ann", 0, time=NOON), event("cam", 1, x=5000)]))
    assert letters_of([result]) == {("local", "ann"): [("s", "cam:1")]}


@dataclass
class Stay:
    """A region was there, for forwarded events from `begin` to `end`. `until`: the offset of the move that ended it."""

    where: tuple[float, float]
    begin: int = BEFORE_ALL
    end: int = NO_END
    until: int = NO_END


@dataclass(eq=False)
class Region:
    """`until`: the offset of its removal. `before`: the time up to which forwarded events count, None for all."""

    node: str
    id: str
    content: tuple[str, SubscriptionBody]
    stays: list[Stay] = field(default_factory=list)
    time: int = 0
    until: int = NO_END
    before: int | None = None

    @property
    def where(self) -> list[tuple[float, float]]:
        return [stay.where for stay in self.stays[-1:]]

    def at(self, time: int) -> list[tuple[float, float]]:
        if self.before is not None and time >= self.before:
            return []
        return [stay.where for stay in self.stays if stay.begin <= time < stay.end]

    def holds(self, record: Record, places: Sequence[tuple[float, float]]) -> bool:
        body = self.content[1]
        near = (SPACES[body.space].distance(*where, record.x, record.y) for where in places)
        return set(body.terms) <= set(record.terms or ()) and any(each <= (body.moving_radius or 0) for each in near)

    def move(self, record: Record, offset: int, most: int) -> None:
        assert None not in (record.x, record.y, record.time)
        x, y, time = record.x or 0.0, record.y or 0.0, record.time or 0
        if not isfinite(x) or SPACES[self.content[1].space].bad_points([x], [y])[0] or time < self.time:
            return
        self.time = time
        body = None if record.body is None else PositionBody.from_json(record.body)
        if not self.stays:
            self.stays = [Stay((x, y))]
        elif body is None or self.stays[-1].where == (x, y) or len(self.stays) > most:
            self.stays[-1].where = x, y
        else:
            self.stays[-1].end, self.stays[-1].until = body.end, offset
            self.stays.append(Stay((x, y), body.begin))

    def forget(self, through: int) -> None:
        self.stays = [stay for stay in self.stays if stay.until > through]
        if self.stays:
            self.stays[0].begin = BEFORE_ALL


class Interpreter:
    """The documented rules, record by record: by offset within a node, by time over links, by batch otherwise."""

    def __init__(self, most: int) -> None:
        """`most`: earlier positions of a region."""
        self.regions: list[Region] = []
        self.seen: set[tuple[str, str | None, int | None]] = set()
        self.letters: Letters = defaultdict(list)
        self.most = most

    def run(self, rows: Sequence[Placed]) -> None:
        events: list[tuple[Placed, list[tuple[Region, list[tuple[float, float]]]]]] = []
        drained: dict[str, int] = {}
        earlier = [region for region in self.regions if region.until != NO_END]
        for row in sorted(rows, key=lambda row: (row.node, row.offset)):
            record, node = row.record, row.node
            live = [region for region in self.regions if region.node == node and region.until == NO_END]
            named = [region for region in live if region.id == record.id]
            if record.kind == FORWARDED:
                events.append((row, []))
            elif record.kind == EVENT and (node, record.entity, record.seq) not in self.seen:
                self.seen.add((node, record.entity, record.seq))
                events.append((row, [(region, region.where) for region in live]))
            elif record.kind == REMOVAL:
                for region in named:
                    region.until = row.offset
                    region.before = record.body and RemovalBody.from_json(record.body).forwarded_until
            elif record.kind == SUBSCRIPTION:
                content = str(record.entity), SubscriptionBody.from_json(record.body)
                if [region.content for region in named] != [content]:
                    for region in named:
                        region.until = row.offset
                    self.regions.append(Region(node, str(record.id), content))
            elif record.kind == POSITION:
                for region in live:
                    if region.content[0] == record.entity:
                        region.move(record, row.offset, self.most)
            elif record.kind == DRAINED:
                drained[node] = max(record.seq or 0, drained.get(node, 0))
        for row, own in events:
            if row.record.kind == FORWARDED:
                others = [(region, region.at(row.record.time or 0)) for region in self.regions]
            else:
                here = (region for region in self.regions if region.node != row.node and region not in earlier)
                others = [(region, region.where) for region in here]
            found = [region for region, places in [*own, *others] if region.holds(row.record, places)]
            for node, subscriber, id in sorted({(r.node, r.content[0], r.id) for r in found}, key=lambda n: n[2]):
                self.letters[node, subscriber].append((id, str(row.record.id)))
        for region in self.regions:
            region.forget(drained.get(region.node, 0))
        self.regions = [
            region
            for region in self.regions
            if region.until == NO_END or (region.before and region.until > drained.get(region.node, 0))
        ]


_ids, _people = st.sampled_from(["s1", "s2", "s3"]), st.sampled_from(["ann", "bob"])
_x, _y = st.sampled_from([0.0, 1.0, 2.0, 40.0, 179.999, -179.999]), st.sampled_from([0.0, 0.0, 1.0, 90.0])
_terms = st.sets(st.sampled_from(["fire", "ice"]), max_size=1).map(sorted)
_spaces = st.sampled_from(["planar", "geographic"])
_counts = st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda t: (t[0], t[0] + t[1]))
_positions = st.builds(position, _people, _x, _y, st.integers(NOON, NOON + 3), st.none() | _counts)
_events = st.tuples(
    st.sampled_from(["north", "south"]),
    st.builds(event, st.sampled_from(["cam", "car"]), st.integers(1, 30), _x, _y, _terms),
)
_forwarded = st.tuples(
    st.just("west+01234567+0"), st.builds(forwarded, st.just("car@west"), st.integers(1, 40), _x, _y, _terms)
)
_controls = st.tuples(
    st.sampled_from(["north", "north", "south"]),
    st.one_of(
        _positions,
        _positions,
        _positions,
        st.builds(around, _ids, _people, st.sampled_from([0.0, 1.5, 250_000.0]), _terms, _spaces),
        st.builds(removal, _ids, _people, st.sampled_from([None, 20])),
        st.builds(drained, st.integers(1, 50)),
        st.builds(position, _people, st.just(nan), _y),
        st.builds(position, _people, _x, st.just(91.0), st.just(NOON + 3)),
    ),
)
_worlds = st.lists(st.tuples(_events | _forwarded | _controls, st.sampled_from("......|r")), max_size=60)
_plans = st.just(BatchSettings()) | st.builds(
    lambda name, workers: BatchSettings(workers=workers, partitioning=PartitioningSettings(name)),
    st.sampled_from(PARTITIONERS),
    st.integers(1, 3),
)


@thorough()
@given(world=_worlds, plan=_plans, most=st.integers(1, 4))
def test_letters_equal_those_of_the_rules(
    world: list[tuple[tuple[str, Record], str]], plan: BatchSettings, most: int
) -> None:
    """With regions that come, move and go at two nodes, in every plan, however batches are cut and restarted."""
    interpreter = Interpreter(most)
    offsets: Counter[str] = Counter()
    batch: list[Placed] = []
    results = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(earlier_positions, "MOST", most)
        stream = PureStream(Path(folder), plan)
        for (node, record), then in [*world, (("north", removal("none", "ann")), "|")]:
            if record.kind == DRAINED:  # it is about earlier records
                record = record._replace(seq=min(record.seq or 0, offsets[node]))
            offsets[node] += 1
            batch.append(Placed(node, offsets[node], record))
            if then != ".":
                interpreter.run(batch)
                results.append(stream.run(batch))
                batch = []
            if then == "r":
                stream.restart()
        regions = stream.folder.open_regions(stream.state.manifest)
    assert letters_of(results) == dict(interpreter.letters)
    assert len(regions) == len(interpreter.regions)


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
