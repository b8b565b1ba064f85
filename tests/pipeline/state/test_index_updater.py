"""Both plans give the same letters, in whole batches without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import Batch, Placed, PureStream, control, match_rows, placed
from hypothesis import given
from hypothesis import strategies as st
from profiles import brief
from worlds import around, event, position, removal, subscription

from roamcast.errors import CorruptionError
from roamcast.journal.records import Record
from roamcast.match.partitioners.hilbert import curve_keys_of_rows
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state.index_state import Shard, ShardedIndex, choose_shard_count
from roamcast.pipeline.state.lookups import TableLookup
from roamcast.pipeline.state.partitioning import PartitioningSettings
from roamcast.pipeline.state.policies import CurvePolicy
from roamcast.pipeline.tasks.match import find_by_handle

CURVE = PartitioningSettings()
EAGER = PartitioningSettings(imbalance=0)


def policy_of(stream: PureStream) -> CurvePolicy:
    """The policy of the published state."""
    sharded = stream.state.manifest.index.sharded
    assert sharded is not None
    return CurvePolicy(len(sharded.shards), CURVE, sharded.partitioning.values)


def letters(result: Batch) -> dict[str, list[dict[str, Any]]]:
    return {office: rows.to_pylist() for office, rows in result.letters.items()}


def subscriptions(count: int) -> list[Record]:
    """In different places, some with a term, some without a box."""
    boxes = [None if n % 7 == 0 else (n % 9 - 1, n % 5 - 1, n % 9 + 1.5, n % 5 + 1) for n in range(count)]
    terms = [((), ("fire",), ("fire", f"t{n % 3}"))[n % 3] for n in range(count)]
    return [subscription(f"s{n}", f"r{n % 4}", *each) for n, each in enumerate(zip(boxes, terms, strict=True))]


def events(first: int, count: int) -> list[Record]:
    return [event("cam", n, n % 9, n % 5, ("fire", f"t{n % 4}")) for n in range(first, first + count)]


def batches(*groups: Sequence[Record]) -> list[list[Placed]]:
    """Each group is a batch, at consecutive offsets."""
    first, batches = 1, []
    for records in groups:
        batches.append(placed(records, first=first))
        first += len(records)
    return batches


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_shards_give_the_same_letters_as_the_whole_index(tmp_path: Path, workers: int) -> None:
    """Subscriptions come and go, and the load is balanced after every batch."""
    world = batches(
        subscriptions(30), events(1, 40), [removal("s3", "r3"), *events(41, 5), removal("s4", "r0")],
        [*subscriptions(4)[1:], *events(46, 40)], events(86, 20),
    )  # fmt: skip
    whole, shared = (
        PureStream(tmp_path / "a"),
        PureStream(tmp_path / "b", BatchSettings(workers=workers, rebalance_events=1, partitioning=EAGER)),
    )
    for rows in world:
        assert letters(shared.run(rows)) == letters(whole.run(rows))
    sharded = shared.state.manifest.index.sharded
    assert sharded is not None
    assert len(sharded.shards) == workers
    assert all(shard.stack for shard in sharded.shards)


@pytest.mark.parametrize("plans", [(0, 2, 4, 0), (4, 1, 0, 3)])
def test_the_plan_may_change_at_every_start(tmp_path: Path, plans: Sequence[int]) -> None:
    """From replicated to various numbers of shards and back."""
    world = batches([*subscriptions(20), *events(1, 9)], events(10, 20), [removal("s1", "r1")], events(30, 20))
    whole, other = (
        PureStream(tmp_path / "a"),
        PureStream(tmp_path / "b", BatchSettings(rebalance_events=1, partitioning=EAGER)),
    )
    for workers, rows in zip(plans, world, strict=True):
        other.settings = replace(other.settings, workers=workers)
        other.restart()
        assert letters(other.run(rows)) == letters(whole.run(rows))


def test_a_restart_during_a_rebalance_changes_nothing(tmp_path: Path) -> None:
    """Interrupted after moves are planned, or after half of their files are written and not published."""
    world = batches(subscriptions(30), events(1, 60), events(61, 60), events(121, 60))
    whole, shared = (
        PureStream(tmp_path / "a"),
        PureStream(tmp_path / "b", BatchSettings(workers=3, rebalance_events=1, partitioning=EAGER)),
    )
    moved = 0
    for rows in world:
        if shared.state.manifest.index.sharded and policy_of(shared).planned:
            before = {path.name for path in shared.folder.segments.iterdir()}
            shared.state.prepare(control(rows), shared.state.manifest.batch + 1)
            new = sorted({path.name for path in shared.folder.segments.iterdir()} - before)
            moved += bool(new)
            for name in new[::2]:
                (shared.folder.segments / name).unlink()
        shared.restart()
        assert letters(shared.run(rows)) == letters(whole.run(rows))
    assert moved


def test_a_shard_without_moves_keeps_its_files(tmp_path: Path) -> None:
    """Some subscriptions move from the first worker to the second; the third is not involved."""
    shared = PureStream(tmp_path, BatchSettings(workers=3))
    shared.run(placed(subscriptions(60)))
    before = shared.state.manifest.index.sharded
    assert before is not None
    policy = policy_of(shared)
    cuts = policy.cuts
    moving = next(n for n, owner in enumerate(cuts.owner) if owner == 0 and is_occupied(shared, n))
    policy.planned = cuts._replace(owner=(*cuts.owner[:moving], 1, *cuts.owner[moving + 1 :]))
    known = shared.folder.open_rows(shared.state.manifest)
    after = shared.folder.updater.reshard(shared.state.manifest.index, 3, CURVE, known, policy)[0].sharded
    assert after is not None
    assert after.shards[2] == before.shards[2]
    assert after.shards[1] != before.shards[1]
    assert after.live == before.live
    assert policy.planned is None


@pytest.mark.parametrize("is_hot", [False, True])
def test_only_an_uneven_load_is_balanced(tmp_path: Path, is_hot: bool) -> None:
    """Events match any subscriptions, or only those of the first worker."""
    shared = PureStream(tmp_path, BatchSettings(workers=2, rebalance_events=1))
    shared.run(placed([subscription(f"s{n}", "ann", (n, 0, n + 0.5, 1), ()) for n in range(200)]))
    sharded = shared.state.manifest.index.sharded
    assert sharded is not None
    rows = shared.folder.index.rows(sharded.shards[0].stack)
    assert rows is not None
    wanted = np.random.default_rng(5).choice(rows.handle if is_hot else 200, 200).tolist()
    shared.run(placed([event("cam", n, x + 0.25, 0.5) for n, x in enumerate(wanted, 1)], first=201))
    assert (policy_of(shared).planned is not None) == is_hot


def test_the_first_subscriptions_are_distributed_evenly(tmp_path: Path) -> None:
    """Even though all of them are in a small area."""
    shared = PureStream(tmp_path, BatchSettings(workers=2))
    shared.run(placed([subscription(f"s{n}", "ann", (n, 0, n + 0.5, 1)) for n in range(200)]))
    sharded = shared.state.manifest.index.sharded
    assert sharded is not None
    assert [90 < sum(segment.live for segment in shard.stack) < 110 for shard in sharded.shards] == [True, True]


def test_the_number_of_shards_stays_by_default() -> None:
    """Whatever number of cores Spark has now. At first it is the number of cores, up to a limit."""
    three = ShardedIndex((Shard(),) * 3, CurvePolicy(3, CURVE).save(), "secret")
    starts = ((None, 1), (None, 8), (None, 900), (three, 8))
    counts = [choose_shard_count("partitioned", 0, before, cores=cores, is_large=False) for before, cores in starts]
    assert counts == [2, 8, 64, 3]
    assert choose_shard_count("partitioned", 5, three, cores=8, is_large=False) == 5
    assert [choose_shard_count("auto", 5, three, cores=8, is_large=is_large) for is_large in (False, True)] == [0, 5]
    assert choose_shard_count("replicated", 5, three, cores=8, is_large=True) == 0


def test_a_process_opens_its_shard_and_the_router_once(tmp_path: Path) -> None:
    """Also with other tasks in between. Files that are open may be deleted."""
    shared = PureStream(tmp_path, BatchSettings(workers=2))
    shared.run(placed(subscriptions(30)))
    rows = placed(events(1, 20), first=31)
    context = shared.state.prepare(control(rows), 1).context
    first, second = (match_rows(context, rows), match_rows(context, rows[:5]))
    for path in shared.folder.segments.iterdir():
        path.unlink()
    assert match_rows(context, rows) == first
    assert match_rows(context, rows[:5]) == second


def is_occupied(stream: PureStream, section: int) -> bool:
    """Whether there is a subscription in this section of the curve."""
    sharded = stream.state.manifest.index.sharded
    assert sharded is not None
    rows = [rows for shard in sharded.shards if (rows := stream.folder.index.rows(shard.stack)) is not None]
    keys = np.concatenate([curve_keys_of_rows(each) for each in rows])
    return bool((np.searchsorted(np.array(policy_of(stream).cuts.at), keys) == section).any())


records = st.one_of(
    st.builds(
        lambda n, box, terms: subscription(f"s{n}", f"r{n % 3}", box, terms),
        st.integers(0, 8),
        st.none() | st.tuples(*[st.integers(-3, 3)] * 2).map(lambda p: (p[0], p[1], p[0] + 2, p[1] + 2)),
        st.lists(st.sampled_from(["a", "b", "c"]), max_size=2),
    ),
    st.builds(lambda n: removal(f"s{n}", f"r{n % 3}"), st.integers(0, 8)),
    st.builds(lambda n: around(f"m{n}", f"r{n}", 2.0), st.integers(0, 2)),
    st.builds(lambda n, x: position(f"r{n}", x), st.integers(0, 2), st.integers(-5, 5)),
    st.builds(
        lambda source, seq, x, y, terms: event(source, seq, x, y, terms),
        st.sampled_from(["cam", "cam@elsewhere"]),
        st.integers(1, 30),
        st.integers(-4, 4),
        st.integers(-4, 4),
        st.lists(st.sampled_from(["a", "b", "c"]), max_size=3),
    ),
)


@given(st.lists(st.lists(records, min_size=1, max_size=12), min_size=1, max_size=6), st.sampled_from([1, 2, 4]))
@brief()
def test_any_history_gives_the_same_letters_in_both_plans(history: list[list[Record]], workers: int) -> None:
    """With moving regions, removals, remote sources and duplicates, and a restart before every batch."""
    with tempfile.TemporaryDirectory() as folder:
        whole = PureStream(Path(folder) / "a")
        shared = PureStream(Path(folder) / "b", BatchSettings(workers=workers, rebalance_events=2, partitioning=EAGER))
        for rows in batches(*history):
            shared.restart()
            assert letters(shared.run(rows)) == letters(whole.run(rows))


def test_a_handle_that_is_not_in_the_table_is_corruption(tmp_path: Path) -> None:
    """No letter is sent to somebody else."""
    with pytest.raises(CorruptionError, match="not in the state"):
        find_by_handle(np.array([7]), TableLookup(tmp_path, SUBSCRIPTIONS.name, ()))
