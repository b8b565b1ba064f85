"""Events of other hosts that are on their way when a subscriber moves: whole batches without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson
import pytest
from batches import Placed, PureStream, placed
from worlds import NOON, around, drained, event, forwarded, position, removal

from roamcast.journal.records import Record
from roamcast.match.index import earlier_positions
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.query.takeover import take_over_state
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.state.partitioning import PARTITIONERS, PartitioningSettings

A, B, C = 0, 5_000, 10_000
LINK = "west+01234567+0"
ARRIVED = [around("s", "ann"), position("ann", A)]
MOVED = position("ann", B, time=NOON + 10, counts=(10, 20))


class Host:
    """A stream with the journal of its node and that of a link."""

    def __init__(self, folder: Path, settings: BatchSettings | None = None) -> None:
        self.stream = PureStream(folder, settings)
        self.offsets = {"local": 0, LINK: 0}

    def run(self, *records: Record) -> None:
        """A batch of control records and local events."""
        self.stream.run(self._placed("local", records))

    def receive(self, *events: tuple[float, int], subscription: str = "s") -> list[int]:
        """A batch of forwarded events, by place and time; returns the times of those that make letters."""
        records = [forwarded("car@west", time, x) for x, time in events]
        result = self.stream.run(self._placed(LINK, records))
        rows = result.letters["local"].to_pylist() if "local" in result.letters else []
        letters = [orjson.loads(row["body"]) for row in rows]
        return [letter["event"]["seq"] for letter in letters if letter["subscription"] == subscription]

    def everywhere(self, subscription: str = "s") -> dict[str, list[int]]:
        """The times at which events at each place make letters."""
        times = (1, 9, 10, 15, 19, 20, 100)
        places = {"A": A, "B": B, "C": C}
        found = {
            name: self.receive(*((x, time) for time in times), subscription=subscription) for name, x in places.items()
        }
        return {name: times for name, times in found.items() if times}

    def take_over(self, folder: Path) -> None:
        inherited = take_over_state(self.stream.folder.folder)
        assert inherited is not None
        self.stream.folder = StateFolder(folder)
        self.stream.folder.create("new", *inherited)
        self.stream.restart()

    @property
    def kept(self) -> int:
        """The number of earlier positions."""
        regions = self.stream.folder.open_regions(self.stream.state.manifest)
        return sum(map(len, regions._earlier.values()))

    def _placed(self, node: str, records: Sequence[Record]) -> list[Placed]:
        rows = placed(records, node, self.offsets[node] + 1)
        self.offsets[node] += len(records)
        return rows


PLANS = {"whole": BatchSettings()} | {
    name: BatchSettings(workers=2, partitioning=PartitioningSettings(name)) for name in PARTITIONERS
}


@pytest.mark.parametrize("plan", PLANS)
def test_an_event_is_matched_with_the_positions_at_its_time(tmp_path: Path, plan: str) -> None:
    """Around the move both count, because clocks are not known exactly."""
    host = Host(tmp_path, PLANS[plan])
    host.run(*ARRIVED)
    host.run(MOVED)
    both = {"A": [1, 9, 10, 15, 19], "B": [10, 15, 19, 20, 100]}
    assert host.everywhere() == both
    host.stream.restart()
    assert host.everywhere() == both


def test_local_events_are_matched_by_offset(tmp_path: Path) -> None:
    """Their times do not count."""
    host = Host(tmp_path)
    host.run(*ARRIVED, event("cam", 15, x=A), MOVED, event("cam", 1, x=B), event("cam", 2, x=A))
    assert host.stream.state.manifest.counters["letters"] == 2


def test_earlier_positions_count_until_links_are_drained(tmp_path: Path) -> None:
    """Also in the batch with the record, and then the last position counts for all times."""
    host = Host(tmp_path)
    host.run(*ARRIVED, MOVED, position("ann", C, time=NOON + 30, counts=(30, 35)))
    assert host.everywhere() == {"A": [1, 9, 10, 15, 19], "B": [10, 15, 19, 20], "C": [100]}
    host.run(drained(2))
    assert host.kept == 2
    rows = placed([drained(3)], "local", 6) + placed([forwarded("car@west", 5, A)], LINK, 50)
    assert host.stream.run(rows).letters["local"].num_rows == 1
    assert host.kept == 2
    assert host.everywhere() == {"B": [1, 9, 10, 15, 19, 20], "C": [100]}
    host.run(drained(4))
    assert host.everywhere() == {"C": [1, 9, 10, 15, 19, 20, 100]}
    assert host.kept == 0


def test_a_move_without_a_body_replaces_the_position_before(tmp_path: Path) -> None:
    """For all forwarded events: nothing is kept of it."""
    host = Host(tmp_path)
    host.run(*ARRIVED, MOVED, position("ann", C, time=NOON + 11))
    assert host.everywhere() == {"A": [1, 9, 10, 15, 19], "C": [10, 15, 19, 20, 100]}
    assert host.kept == 1


@pytest.mark.parametrize("together", [False, True])
def test_repeated_records_change_nothing(tmp_path: Path, together: bool) -> None:
    """A node that crashed journals its last records again; a new region brings its position."""
    host = Host(tmp_path)
    for records in [[*ARRIVED, MOVED, *ARRIVED, MOVED]] if together else [ARRIVED, [MOVED], ARRIVED, [MOVED]]:
        host.run(*records)
    host.run(position("ann", B, time=NOON + 10))
    assert host.everywhere() == {"A": [1, 9, 10, 15, 19], "B": [10, 15, 19, 20, 100]}
    assert host.kept == 1


def test_regions_of_a_subscriber_have_their_own_past(tmp_path: Path) -> None:
    """Also after a takeover: a region was nowhere before it was added. One that is removed stays where it was."""
    host = Host(tmp_path / "old")
    host.run(*ARRIVED, MOVED, around("t", "ann", 20.0), position("ann", B, time=NOON + 10))
    host.run(removal("s", "ann", 1000), position("ann", C, time=NOON + 50, counts=(40, 60)))
    old = {"A": [1, 9, 10, 15, 19], "B": [10, 15, 19, 20, 100]}, {"B": [1, 9, 10, 15, 19, 20], "C": [100]}
    assert (host.everywhere(), host.everywhere("t")) == old
    host.take_over(tmp_path / "new")
    assert (host.everywhere(), host.everywhere("t")) == old
    host.run(drained(3))
    assert (host.everywhere(), host.everywhere("t")) == ({"B": [1, 9, 10, 15, 19, 20, 100]}, old[1])
    host.run(drained(7))
    assert (host.everywhere(), host.everywhere("t")) == ({}, {"C": [1, 9, 10, 15, 19, 20, 100]})


def test_boxes_shrink_when_links_are_drained(tmp_path: Path) -> None:
    """The index does not search for what no longer counts."""
    host = Host(tmp_path)
    host.run(*ARRIVED, MOVED)

    def width() -> float:
        rows = host.stream.folder.index.rows(host.stream.state.manifest.index.stack)
        assert rows is not None
        return float(rows.box[0][2] - rows.box[0][0])

    host.run(event("cam", 1))
    assert width() > 2 * (B - A)
    before = host.stream.state.manifest.index
    host.run(event("cam", 2))
    assert host.stream.state.manifest.index == before
    host.run(drained(3))
    assert width() > 2 * (B - A)
    host.run(event("cam", 3))
    assert width() == pytest.approx(30.0)


def test_a_region_keeps_a_limited_number_of_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a peer is away for long: then a move replaces the position before. The file is not written again."""
    monkeypatch.setattr(earlier_positions, "MOST", 2)
    host = Host(tmp_path)
    moves = [position("ann", 1000.0 * n, time=NOON + n, counts=(10 * n, 10 * n)) for n in range(1, 20)]
    host.run(*ARRIVED, *moves[:1])
    host.run(*moves[1:5])
    (files,) = host.stream.state.manifest.moving_regions
    for move in moves[5:]:
        host.run(move)
    assert host.kept == 2
    assert host.stream.state.manifest.moving_regions[0].earlier == files.earlier
    assert host.receive((0, 5), (1000, 15), (2000, 25), (3000, 35), (19_000, 26), (19_000, 16)) == [5, 15, 26]


def test_without_peers_nothing_is_kept(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(*ARRIVED, *(position("ann", x, time=NOON + x) for x in (B, C)))
    assert [files.earlier for files in host.stream.state.manifest.moving_regions] == [None]


def test_many_moves_equal_brute_force(tmp_path: Path) -> None:
    """Of many regions, with events all around, and draining all the time."""
    rng = np.random.default_rng(8)
    host, now, found, right = Host(tmp_path), 1, 0, 0
    people = [f"p{n}" for n in range(40)]
    radius = {who: float(rng.choice([5, 50, 500])) for who in people}
    host.run(*(around(who, who, radius[who]) for who in people), *(position(who, 0) for who in people))
    stays = {who: [(0.0, 0.0, -np.inf, np.inf, 0)] for who in people}
    through = 0
    for _ in range(12):
        records: list[Record] = []
        for _ in range(30):
            now += 1
            who = str(rng.choice(people))
            *before, (x, y, begin, _, _) = stays[who]
            moved = np.add((x, y), rng.normal(0, float(rng.choice([3.0, 30.0, 3000.0])), 2)).tolist()
            early, late = now - int(rng.integers(20)), now + int(rng.integers(20))
            records.append(position(who, *moved, NOON + now, (early, late)))
            stays[who] = [
                *before,
                (x, y, begin, late, host.offsets["local"] + len(records)),
                (*moved, early, np.inf, 0),
            ]
        host.run(*records)
        events = []
        for n in range(100):
            one = stays[str(rng.choice(people))]
            x, y, *_ = one[int(rng.integers(len(one)))]
            time = now - int(rng.integers(200))
            events.append(forwarded("car@west", 1_000 * now + n, x, y)._replace(time=NOON + time))
            right += sum(
                any(np.hypot(x - a, y - b) <= radius[who] and begin <= time < end for a, b, begin, end, _ in stays[who])
                for who in people
            )
        result = host.stream.run(host._placed(LINK, events))
        found += sum(letters.num_rows for letters in result.letters.values())
        assert found == right
        through = host.offsets["local"] - int(rng.integers(60))
        host.run(drained(through))
        for who in people:
            (x, y, _, end, until), *others = [stay for stay in stays[who] if not 0 < stay[-1] <= through]
            stays[who] = [(x, y, -np.inf, end, until), *others]
    assert right > 3_000
