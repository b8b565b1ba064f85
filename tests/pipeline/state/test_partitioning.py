"""Every partitioner in the real plan of the pipeline: exact, and the same decisions again for a repeated batch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from batches import Batch, Placed, PureStream, control, match_rows, placed
from hypothesis import given
from hypothesis import strategies as st
from profiles import brief
from worlds import around, drained, event, forwarded, position, removal, subscription, town

from roamcast.journal.records import Record
from roamcast.match.index.rows import concatenate_rows, select_rows
from roamcast.match.partitioners.categories import CategoryParameters, Distribution
from roamcast.pipeline.letters.here import make_letters_here
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.schemas import CATEGORIES, MEMBERS
from roamcast.pipeline.state.category_policy import CategoryPolicy
from roamcast.pipeline.state.index_state import ShardedIndex
from roamcast.pipeline.state.partitioning import (
    MATCHERS,
    MEASURED,
    PARTITIONERS,
    MatcherName,
    PartitionerName,
    PartitioningSettings,
)

FEW = CategoryParameters(4, new_threshold=0.3, window=8, matches=4)


def settings(
    partitioner: PartitionerName, workers: int = 3, every: int = 2, matcher: MatcherName = "index"
) -> BatchSettings:
    """Few categories, and balancing all the time."""
    partitioning = PartitioningSettings(partitioner, 0.0, FEW, Distribution(overload=1.0), matcher)
    return BatchSettings(workers=workers, rebalance_events=every, partitioning=partitioning)


def letters(batch: Batch) -> dict[str, Any]:
    """The letters, and the number of matches: a pair that is found twice makes one letter."""
    found = {office: rows.to_pylist() for office, rows in batch.letters.items()}
    return {"letters": found, "matches": batch.result.matches}


def shards_of(stream: PureStream) -> ShardedIndex:
    sharded = stream.state.manifest.index.sharded
    assert sharded is not None
    return sharded


def batches(history: Sequence[Sequence[Record]]) -> Iterator[list[Placed]]:
    """Each group is a batch, at consecutive offsets."""
    first = 1
    for records in history:
        yield placed(records, first=first)
        first += len(records)


boxes = st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 4), st.integers(0, 4)).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)
terms = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=3)
records = st.one_of(
    st.builds(
        lambda n, box, needed: subscription(f"s{n}", f"r{n % 3}", box, needed),
        st.integers(0, 25),
        st.none() | boxes | st.just((2, -1, -2, 1)),
        terms,
    ),
    st.builds(lambda n: removal(f"s{n}", f"r{n % 3}"), st.integers(0, 25)),
    st.builds(lambda n, needed: around(f"m{n}", f"r{n}", 2.0, needed), st.integers(0, 2), terms),
    st.builds(
        lambda n, x, y, counts: position(f"r{n}", x, y, counts=counts),
        st.integers(0, 2),
        st.integers(-5, 5),
        st.integers(-5, 5),
        st.none() | st.tuples(st.integers(0, 50), st.integers(50, 99)),
    ),
    st.builds(forwarded, st.just("car@west"), st.integers(1, 99), st.integers(-4, 4), st.integers(-4, 4), terms),
    st.builds(drained, st.integers(0, 60)),
    st.builds(event, st.just("cam"), st.integers(1, 99), st.integers(-4, 4), st.integers(-4, 4), terms),
    st.builds(event, st.just("cam@elsewhere"), st.integers(1, 99), st.integers(-4, 4), st.integers(-4, 4), terms),
)
histories = st.lists(st.lists(records, min_size=1, max_size=20), min_size=1, max_size=4)
partitioners = st.sampled_from(PARTITIONERS)
matchers = st.sampled_from(MATCHERS)


@given(histories, partitioners, st.sampled_from([1, 2, 4]), st.data())
@brief()
def test_any_history_gives_the_letters_of_the_whole_index(
    history: list[list[Record]], partitioner: PartitionerName, workers: int, data: st.DataObject
) -> None:
    """With restarts and repeated attempts, which reach the same state as a process that just goes on."""
    with tempfile.TemporaryDirectory() as folder:
        whole, steady, unlucky = (PureStream(Path(folder) / name) for name in "abc")
        steady.settings = unlucky.settings = settings(partitioner, workers, matcher=data.draw(matchers))
        for stream in (steady, unlucky):
            stream.restart()
        for rows in batches(history):
            expected = letters(whole.run(rows))
            assert letters(steady.run(rows)) == expected
            if data.draw(st.booleans()):
                unlucky.restart()
            if data.draw(st.booleans()):
                unlucky.attempt(rows)
            assert letters(unlucky.run(rows)) == expected
            assert decisions(unlucky) == decisions(steady)


@given(histories, st.data())
@brief()
def test_plan_partitioner_shards_and_matcher_may_change_at_every_start(
    history: list[list[Record]], data: st.DataObject
) -> None:
    """From any to any other; the letters stay the same."""
    with tempfile.TemporaryDirectory() as folder:
        whole, other = PureStream(Path(folder) / "a"), PureStream(Path(folder) / "b")
        for rows in batches(history):
            if data.draw(st.booleans()):
                workers, matcher = data.draw(st.sampled_from([0, 1, 2, 4])), data.draw(matchers)
                other.settings = settings(data.draw(partitioners), workers, matcher=matcher)
                other.restart()
            assert letters(other.run(rows)) == letters(whole.run(rows))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_busy_town_gives_the_letters_of_the_whole_index(tmp_path: Path, partitioner: PartitionerName) -> None:
    """Every partitioner that can moves subscriptions meanwhile; DRt-Cluster also merges, within and between workers.

    Forgotten moves would change no letter, so that what shards hold is compared with what was decided.
    """
    whole, shared = PureStream(tmp_path / "a"), PureStream(tmp_path / "b", settings(partitioner, every=20))
    moved = 0
    for rows in batches([town(seed, 60, 60 * seed) for seed in range(8)]):
        before = holders(shared) if shared.state.manifest.index.sharded else {}
        assert letters(shared.run(rows)) == letters(whole.run(rows))
        after = holders(shared)
        if partitioner == "drtcluster":
            assert after == workers_of_categories(shared)
        moved += sum(before[handle] != after[handle] for handle in before.keys() & after.keys())
    assert (moved > 0) == (partitioner != "hashing")
    if partitioner == "drtcluster":
        values = shards_of(shared).partitioning.values
        assert min(values["merges"], values["moved"], values["balanced"]) > 0


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_comparing_one_by_one_gives_the_letters_of_the_whole_index(
    tmp_path: Path, partitioner: PartitionerName
) -> None:
    """Each pair is compared at most once. The load of a shard counts the comparisons, also those without a match."""
    whole = PureStream(tmp_path / "a")
    shared = PureStream(tmp_path / "b", settings(partitioner, every=20, matcher="one_by_one"))
    compared = matches = 0
    for rows in batches([town(seed, 60, 60 * seed) for seed in range(2)]):
        result = shared.run(rows)
        assert letters(result) == letters(whole.run(rows))
        compared, matches = compared + result.result.postings_scanned, matches + result.result.matches
        assert result.result.load.of_shards.checks.sum() == result.result.postings_scanned
        assert result.result.load.of_shards.messages.sum() * len(holders(shared)) >= result.result.postings_scanned
    assert compared > matches > 0


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_repeated_batch_decides_the_same(tmp_path: Path, partitioner: PartitionerName) -> None:
    """One process runs each batch once. The other fails each time and tries again, half of the time after a restart.

    It reads the records in parts of eight, the last part first.
    """
    steady, unlucky = (PureStream(tmp_path / name, settings(partitioner, every=20)) for name in "ab")
    for number, rows in enumerate(batches([town(seed, 60, 60 * seed) for seed in range(8)])):
        steady.run(rows)
        if number % 2:
            unlucky.restart()
        unlucky.attempt(rows)
        unlucky.run([row for first in range(0, len(rows), 8)[::-1] for row in rows[first : first + 8]])
        assert decisions(unlucky) == decisions(steady)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_sample_of_matches_is_small_however_many_there_are(tmp_path: Path, partitioner: PartitionerName) -> None:
    """With the number of matches, since the load depends on it. Only partitioners that learn from matches get one."""
    stream = PureStream(tmp_path, settings(partitioner))
    stream.run(placed([subscription(f"s{n}", f"r{n}") for n in range(300)]))
    rows = placed([event("cam", 1), event("cam", 2, terms=["ice"]), event("cam", 3)], first=301)
    prepared = stream.state.prepare(control(rows), 1)
    matched = match_rows(prepared.context, rows)
    sample = [one for report in make_letters_here(matched, prepared.letters, sink) for one in report.sample]
    most = {"curve": 64, "drtcluster": FEW.matches}.get(partitioner, 0)
    assert [(one.offset, one.matches) for one in sample] == ([(301, 300), (303, 300)] if most else [])
    for one in sample:
        offset = one.offset - 301
        assert len(set(one.rows)) == most
        assert set(one.rows) <= set(matched["subscriptions"][offset].as_py())


def sink(office: str, letters: pa.Table) -> None:
    """Nobody reads them."""


def test_restored_categories_are_those_that_were_kept(tmp_path: Path) -> None:
    """With the current boxes of moving regions, and the window of correlation."""
    stream = PureStream(tmp_path, settings("drtcluster", every=20))
    for rows in batches([town(seed, 60, 60 * seed) for seed in range(8)]):
        kept = stream.run(rows).result.policy
        assert isinstance(kept, CategoryPolicy)
        sharded = shards_of(stream)
        held = [stream.folder.index.rows(shard.stack) for shard in sharded.shards]
        together = reduce(concatenate_rows, [rows for rows in held if rows is not None])
        restored = CategoryPolicy.restore(
            len(sharded.shards),
            stream.settings.partitioning,
            stream.folder.parts,
            sharded.partitioning,
            select_rows(together, np.argsort(together.handle)),
        )
        expected, found = kept.categories.arrays(), restored.categories.arrays()
        for name in ("handle", "box", "category", "window", "added"):
            np.testing.assert_array_equal(found[name], expected[name], name)


@pytest.mark.parametrize("partitioner", sorted(MEASURED))
def test_a_measured_index_does_not_depend_on_earlier_events(tmp_path: Path, partitioner: PartitionerName) -> None:
    """A process that starts later has not seen them, and must count the same load."""
    stacks = []
    for term in ("fire", "ice"):
        stream = PureStream(tmp_path / term, settings(partitioner))
        stream.run(placed([event("cam", n, 0, 0, [term]) for n in range(1, 9)]))
        wanted = [subscription(f"s{n}", "ann", (n, 0, n + 1, 1), ("fire", "ice")) for n in range(9)]
        stream.run(placed(wanted, first=9))
        stacks.append([shard.stack for shard in shards_of(stream).shards])
    assert stacks[0] == stacks[1]


def decisions(stream: PureStream) -> dict[str, Any]:
    """The state of the partitioner and what each shard holds: everything but the secret and files made with it."""
    sharded = shards_of(stream)
    held = {f"shard {number}": [part._asdict() for part in shard.rows] for number, shard in enumerate(sharded.shards)}
    return {"partitioning": sharded.partitioning.to_json(), "holders": holders(stream), **held}


def workers_of_categories(stream: PureStream) -> dict[int, list[int]]:
    """The worker of the category of each subscription, as stored."""
    tables = shards_of(stream).partitioning.tables
    members, categories = (
        stream.folder.parts.read_all(table, tables[table.name]).to_pylist() for table in (MEMBERS, CATEGORIES)
    )
    worker = {row["category"]: row["worker"] for row in categories}
    return {row["handle"]: [worker[row["category"]]] for row in members if row["category"] >= 0}


def holders(stream: PureStream) -> dict[int, list[int]]:
    """The shards that hold each subscription."""
    held: dict[int, list[int]] = {}
    for number, shard in enumerate(shards_of(stream).shards):
        rows = stream.folder.index.rows(shard.stack)
        for handle in () if rows is None else rows.handle.tolist():
            held.setdefault(handle, []).append(number)
    return held
