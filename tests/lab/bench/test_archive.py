"""The benchmark of the archive finds what it has written."""

from __future__ import annotations

from roamcast.lab.bench.archive import bench_archive


def test_all_events_are_found() -> None:
    figures = bench_archive(20_000, lambda _: None)
    assert (figures["all_found"], figures["source_found"]) == (20_000, 2)
    assert figures["box_found"] < 20
