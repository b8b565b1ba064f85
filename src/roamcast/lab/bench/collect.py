"""`roamcast bench collect`: the cost of simulating fields.

Measures the paper's default run, a hundred runs of both protocols as Spark tasks, and a field a hundred times as large
with the same density. Kernels are compiled before. The work of a run is its transfers: in a large field communities are
larger, so that events take more hops, and more mules are in contact with each community. The wide field has a hundred
times the sensors and twice the mules, about as many per community as the default; it shows the effect of size alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roamcast.collect.protocol.rules import CET, DG
from roamcast.collect.simulation.field import Field, draw_world
from roamcast.collect.simulation.replication import Replication
from roamcast.collect.simulation.simulate import simulate

__all__ = ["LARGE", "WIDE", "bench_collect"]

Report = Callable[[str], None]
RunReplications = Callable[[Sequence[Replication], Path], object]

LARGE = Field(side=2000.0, cells=150, sensors=10_000, mules=200)
WIDE = replace(LARGE, mules=20, duration_s=600.0)
_SEEDS = range(10)
_HOURS_S = 7200.0


def bench_collect(
    report: Report, run: RunReplications, *, runs: int = 100, large_s: float = _HOURS_S
) -> dict[str, Any]:
    """Run the benchmark and return its figures. `run` executes replications and stores their results in a folder.

    `default_run_s` is the median of ten seeds, `default_run_worst_s` the maximum; both include drawing the world.
    """
    simulate(draw_world(Field(duration_s=60.0), 0), CET())  # compiles the kernels
    report("the paper's default run, ten seeds")
    times, sends = zip(*(_time_run(Field(), seed) for seed in _SEEDS), strict=True)
    default = sorted(times)[len(times) // 2]
    report(f"{runs} runs of both protocols through Spark")
    replications = [Replication(Field(), protocol, seed) for seed in range(runs) for protocol in (CET(), DG())]
    with tempfile.TemporaryDirectory() as folder:
        run(replications[:4], Path(folder) / "warm")  # starts the Python workers, which load the kernels
        start = time.perf_counter()
        run(replications, Path(folder))
        replications_s = time.perf_counter() - start
    report("the wide field, and the large one")
    wide, wide_sends = _time_run(WIDE, 0)
    large, large_sends = _time_run(replace(LARGE, duration_s=large_s), 0)
    return {
        "default_run_s": round(default, 4),
        "default_run_worst_s": round(max(times), 4),
        "default_us_per_send": round(1e6 * sum(times) / sum(sends), 3),
        "runs_200_s": round(replications_s, 2),
        "wide_us_per_send": round(1e6 * wide / wide_sends, 3),
        "large_field_s": round(large, 2),
        "large_sends": large_sends,
        "large_us_per_send": round(1e6 * large / large_sends, 3),
    }


def _time_run(field: Field, seed: int) -> tuple[float, int]:
    """Seconds and transfers of one run of CET."""
    start = time.perf_counter()
    result = simulate(draw_world(field, seed), CET())
    return time.perf_counter() - start, result.counts["hops"]
