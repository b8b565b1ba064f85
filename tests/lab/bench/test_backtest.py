"""The benchmark of backtests finds what a scan finds."""

from __future__ import annotations

from pathlib import Path

from roamcast.lab.bench.backtest import bench_backtest


def test_letters_are_those_of_a_scan(tmp_path: Path) -> None:
    figures = bench_backtest(tmp_path, 20_000, lambda _: None)
    assert figures["events"] == 20_000
    assert figures["box_letters"] == figures["scan_found"] > 0
    assert figures["nearest_letters"] > 0
    assert all(figures[f"{query}_exact"] for query in ("box", "around", "nearest"))
