"""`roamcast bench collect`: what a simulated field costs.

The paper's default run; a hundred runs of both protocols as Spark tasks; and a field of a hundred times the size at the
same density. What is compiled is compiled before. Sends are what a run consists of: in a large field communities are
larger, so that events take more hops, and more mules are in contact with each. The wide field has a hundred times the
sensors and twice the mules, about as many to a community as the default: there the size alone is to be seen.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roamcast.collect.simulation.field import Field, draw
from roamcast.collect.simulation.protocols import CET, DG
from roamcast.collect.simulation.replication import Job
from roamcast.collect.simulation.simulate import simulate
from roamcast.collect.simulation.warm_up import rehearse

__all__ = ["LARGE", "WIDE", "bench_collect"]

Say = Callable[[str], None]
Run = Callable[[Sequence[Job], Path], object]

LARGE = Field(side=2000.0, cells=150, sensors=10_000, mules=200)
WIDE = replace(LARGE, mules=20, duration_s=600.0)
_SEEDS = range(10)
_HOURS_S = 7200.0


def bench_collect(say: Say, run: Run, *, runs: int = 100, large_s: float = _HOURS_S) -> dict[str, Any]:
    """Figures of one run of this. `run` does jobs and keeps what is finished in a folder.

    `default_run_s` is the median of ten seeds, `default_run_worst_s` the longest; each with drawing its world.
    """
    rehearse()
    say("the paper's default run, ten seeds")
    times, sends = zip(*(_timed(Field(), seed) for seed in _SEEDS), strict=True)
    default = sorted(times)[len(times) // 2]
    say(f"{runs} runs of both protocols through Spark")
    jobs = [Job(Field(), protocol, seed) for seed in range(runs) for protocol in (CET(), DG())]
    with tempfile.TemporaryDirectory() as folder:
        run(jobs[:4], Path(folder) / "warm")  # Python workers start, and load what is compiled
        began = time.perf_counter()
        run(jobs, Path(folder))
        both = time.perf_counter() - began
    say("the wide field, and the large one")
    wide, wide_sends = _timed(WIDE, 0)
    large, large_sends = _timed(replace(LARGE, duration_s=large_s), 0)
    return {
        "default_run_s": round(default, 4),
        "default_run_worst_s": round(max(times), 4),
        "default_us_per_send": round(1e6 * sum(times) / sum(sends), 3),
        "runs_200_s": round(both, 2),
        "wide_us_per_send": round(1e6 * wide / wide_sends, 3),
        "large_field_s": round(large, 2),
        "large_sends": large_sends,
        "large_us_per_send": round(1e6 * large / large_sends, 3),
    }


def _timed(field: Field, seed: int) -> tuple[float, int]:
    """Seconds and sends of one run of CET."""
    began = time.perf_counter()
    outcome = simulate(draw(field, seed), CET())
    return time.perf_counter() - began, outcome.counts["hops"]
