"""The collect bench runs what it times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roamcast.collect.simulation.replication import Replication
from roamcast.lab.bench.collect import bench_collect


def test_both_protocols_get_the_worlds_that_are_asked_for(tmp_path: Path) -> None:
    """As many runs of each as were asked for, the large field once; every figure has its name."""
    done: list[Replication] = []

    def run(jobs: Sequence[Replication], folder: Path) -> None:
        done.extend(jobs)

    figures = bench_collect(lambda line: None, run, runs=3, large_s=300.0)
    assert [(job.seed, job.protocol.name) for job in done[-6:]] == [(s, p) for s in range(3) for p in ("CET", "DG")]
    assert {"default_run_s", "runs_200_s", "large_field_s"} <= figures.keys()
    assert figures["large_sends"] > 0
