"""Metrics of a batch."""

from __future__ import annotations

from pathlib import Path

from batches import PureStream, placed
from worlds import around, event, position, subscription

from roamcast.pipeline.query.stream import StepTimer, batch_metrics


def test_metrics_describe_the_batch_and_the_state(tmp_path: Path) -> None:
    """There are at least as many postings scanned as matches; sizes are those on disk."""
    stream = PureStream(tmp_path)
    result = stream.run(placed([subscription("s", "ann"), around("r", "bob"), position("bob", 0), event("cam", 1)]))
    metrics = batch_metrics(result, stream.folder)
    assert (metrics["matches"], metrics["segments"], metrics["moving_regions"]) == (2, 1, 1)
    assert metrics["postings_scanned"] >= 2
    assert metrics["state_bytes"] == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())


def test_steps_are_timed_in_order() -> None:
    """Each from the end of the previous one."""
    timer = StepTimer()
    for step in ("control", "match"):
        timer.step(step)
    assert list(timer.seconds) == ["control", "match"]
    assert all(seconds >= 0 for seconds in timer.seconds.values())
