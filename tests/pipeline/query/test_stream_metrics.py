"""Metrics of a batch."""

from __future__ import annotations

from pathlib import Path

from batches import PureStream, placed
from worlds import around, event, position, subscription

from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.query.partitioning_status import partitioning_status
from roamcast.pipeline.query.stream import StepTimer, batch_metrics
from roamcast.pipeline.state.partitioning import PartitioningSettings


def test_metrics_describe_the_batch_and_the_state(tmp_path: Path) -> None:
    """There are at least as many postings scanned as matches; sizes are those on disk."""
    stream = PureStream(tmp_path)
    result = stream.run(placed([subscription("s", "ann"), around("r", "bob"), position("bob", 0), event("cam", 1)]))
    metrics = batch_metrics(result.result, stream.folder)
    assert (metrics["matches"], metrics["segments"], metrics["moving_regions"]) == (2, 1, 1)
    assert metrics["postings_scanned"] >= 2
    assert metrics["state_bytes"] == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())


def test_partitioning_status_describes_shards_and_categories(tmp_path: Path) -> None:
    """None for the replicated plan."""
    records = [subscription(f"s{n}", "ann", (n, 0, n + 0.5, 1), [f"t{n % 2}"]) for n in range(20)]
    records += [event("cam", n, n + 0.25, 0.5, [f"t{n % 2}"]) for n in range(1, 20)]
    assert partitioning_status(PureStream(tmp_path / "a").run(placed(records)).result) is None
    settings = BatchSettings(workers=2, partitioning=PartitioningSettings("drtcluster"))
    status = partitioning_status(PureStream(tmp_path / "b", settings).run(placed(records)).result)
    assert status is not None
    assert [sum(shard[name] for shard in status["shards"]) for name in ("subscriptions", "matches")] == [20, 19]
    assert sum(one["size"] for one in status["categories"]) == 20
    assert len(status["categories"]) == status["category_count"]
    assert sum(one["load"] for one in status["categories"]) > 20
    assert 1 <= status["imbalance"] <= 2
    assert (status["partitioner"], status["moved"], status["merges"]) == ("drtcluster", 0, 0)


def test_steps_are_timed_in_order() -> None:
    """Each from the end of the previous one."""
    timer = StepTimer()
    for step in ("control", "match"):
        timer.step(step)
    assert list(timer.seconds) == ["control", "match"]
    assert all(seconds >= 0 for seconds in timer.seconds.values())
