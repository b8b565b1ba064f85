"""`roamcast bench collect`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roamcast.collect.simulation.replication import Replication
from roamcast.lab.bench.collect import bench_collect


def test_the_benchmark_runs_both_protocols_on_the_same_seeds(tmp_path: Path) -> None:
    """The given number of runs of each protocol, and all figures."""
    done: list[Replication] = []

    def run(replications: Sequence[Replication], folder: Path) -> None:
        done.extend(replications)

    figures = bench_collect(lambda line: None, run, runs=3, large_s=300.0)
    assert [(one.seed, one.protocol.name) for one in done[-6:]] == [(s, p) for s in range(3) for p in ("CET", "DG")]
    assert {"default_run_s", "runs_200_s", "large_field_s"} <= figures.keys()
    assert figures["large_sends"] > 0
