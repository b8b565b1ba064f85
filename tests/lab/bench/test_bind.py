"""Both sides of `roamcast bench bind` compute the right bindings."""

from __future__ import annotations

from roamcast.lab.bench.bind import bench_bind


def test_both_sides_agree_with_an_exhaustive_search() -> None:
    """In a small workload after every batch; and they agree with each other from the start."""
    lines: list[str] = []
    figures = bench_bind(lines.append, sources=500, contexts=5, subscriptions=4_000, moves=10_000, batch=2_000)
    assert (figures["wrong"], figures["kdtree_wrong"], figures["checked"]) == (0, 0, 10_000)
    assert figures["different"] == 0
    assert 0 < figures["changes_per_move"] < 1
    assert figures["ratio"] > 0
    assert (figures["moves"], figures["subscriptions"], figures["subscribers"]) == (10_000, 4_000, 4_000)
    assert 0 < figures["bytes_per_subscription"] < 1_000
    assert any("5 of 5 batches" in line for line in lines)
