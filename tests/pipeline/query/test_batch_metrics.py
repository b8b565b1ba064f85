"""What a batch cost."""

from __future__ import annotations

from pathlib import Path

from pure import PureStream, placed
from worlds import around, event, position, subscription

from roamcast.pipeline.query.batch_metrics import Watch, figures_of


def test_figures_tell_of_the_batch_and_the_state(tmp_path: Path) -> None:
    """Candidates are at least the matches; sizes are those on disk."""
    stream = PureStream(tmp_path)
    entry = stream.run(placed([subscription("s", "ann"), around("r", "bob"), position("bob", 0), event("cam", 1)]))
    figures = figures_of(entry, stream.state)
    assert (figures["matches"], figures["segments"], figures["moving_regions"]) == (2, 1, 1)
    assert figures["candidates"] >= 2
    assert figures["state_bytes"] == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())


def test_steps_follow_each_other() -> None:
    """In the order in which they were taken."""
    watch = Watch()
    for step in ("control", "match"):
        watch.step(step)
    assert list(watch.seconds) == ["control", "match"]
    assert all(seconds >= 0 for seconds in watch.seconds.values())
