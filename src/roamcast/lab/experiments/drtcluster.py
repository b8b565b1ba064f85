"""`roamcast reproduce drtcluster`: figures 4 to 7 of the paper on DRt-Cluster, and all partitioners beside it.

Throughput is counted, not timed: events for each unit of work of the busiest worker, where a message, a look at a
subscription and a change are one unit each. So it is the same on every machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from roamcast.durable import make_folder
from roamcast.lab.experiments.drtcluster_data import Places, World
from roamcast.lab.experiments.drtcluster_plots import Plots
from roamcast.lab.experiments.drtcluster_run import (
    PARTITIONERS,
    VARIANTS,
    WORKERS,
    Counted,
    drift,
    reading,
    spread,
    train,
    work_of,
)
from roamcast.lab.experiments.drtcluster_verdicts import verdicts
from roamcast.lab.experiments.tables import write_csv
from roamcast.lab.match_workers import SimulatedWorkers
from roamcast.match.partitioners.drtcluster import Distribution, DrtCluster

__all__ = ["reproduce"]

Say = Callable[[str], None]
Row = dict[str, Any]

SWEEP: Final = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
"""CMaxNumTh for each subscription."""
EAGER: Final = 1.2
"""A worker is overloaded from so many times the mean load on; in the paper from 2 on."""
MERGED: Final = (0.1, 0.2, 0.5)
"""CMaxNumTh for each subscription, of figure 5: with more there is less to merge."""
_SWEPT_SEEDS: Final = 2
_FIRST_SEED: Final = 2_000  # the partitioner of our own was tuned with others
_MERGING: Final = {"InNode": False, "InAndBetNode": True}


def reproduce(folder: Path, say: Say, *, seeds: int = 10, events: int = 100_000) -> dict[str, Any]:
    """All figures as PNG and CSV in `folder`, and as what is returned: means over the seeds, which run on all cores."""
    plots = Plots()
    Places.read()  # before anything else is begun: it may not be there
    make_folder(folder)
    found: dict[str, list[Row]] = {}
    at_once = min(seeds, os.cpu_count() or 1)
    say(f"{seeds} seeds, {at_once} at a time: a minute or two for each, more for the first two")
    with get_context("spawn").Pool(at_once, _deaf) as pool:
        for done, rows in enumerate(pool.imap(partial(_of_seed, events), range(seeds)), 1):
            say(f"seed {done} of {seeds} is done")
            for name, some in rows.items():
                found.setdefault(name, []).extend(some)
    files = [write_csv(folder / f"drtcluster-{name}.csv", rows) for name, rows in found.items()]
    figures = _summary(found)
    return {
        **figures,
        "verdicts": verdicts(figures, found),
        "seeds": seeds,
        "files": [str(file) for file in (*files, *plots.draw_all(folder, figures))],
    }


def _deaf() -> None:
    """Ctrl-C is for the process that waits for these, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _of_seed(events: int, seed: int) -> dict[str, list[Row]]:
    """What is counted with one seed."""
    places = Places.read()

    def world() -> World:
        return World(places, _FIRST_SEED + seed, min(events, len(places.x) * 4 // 5))

    found = {
        "figure4": [_figure4(name, world()) for name in VARIANTS],
        "figure5": [row for most in MERGED for name in _MERGING for row in _figure5(name, most, world())],
        "figure7": [_figure7(world)],
        **{
            kind: [{"partitioner": name, **measure(make, world())._asdict()} for name, make in PARTITIONERS.items()]
            for kind, measure in (("partitioners", spread), ("drift", drift))
        },
        "sweep": [_swept(most, world) for most in SWEEP] if seed < _SWEPT_SEEDS else [],
    }
    return {name: [{"seed": seed, **row} for row in rows] for name, rows in found.items()}


def _figure4(name: str, world: World) -> Row:
    """Categories that an event is sent to, by both readings; the paper's is drawn as `training` and `after`."""
    workers = SimulatedWorkers(DrtCluster(1, reading(world, variant=name)))
    training = _total([counted for _, counted in train(workers, world, weakly=True)])
    after = work_of(workers, world.events(world.after), weakly=True)
    return {
        "variant": name,
        "training": training.each(training.categories),
        "after": after.each(after.categories),
        "training_weak": training.each(training.weakly),
        "after_weak": after.each(after.weakly),
        "members_after": after.each(after.members),
        "checks_after": after.each(after.checks),
    }


def _figure5(name: str, most: float, world: World) -> list[Row]:
    """Subscriptions that merging gave another category, and another worker, in each tenth of the training."""
    cluster = DrtCluster(WORKERS, reading(world, most), Distribution(between=_MERGING[name]))
    workers, done = SimulatedWorkers(cluster), [(0, 0)] * 11
    for tenth, _ in train(workers, world):
        done[tenth + 1] = cluster.effort.relabelled, cluster.effort.moved
    return [
        {
            "merging": name,
            "most": most,
            "tenth": tenth,
            "relabelled": now[0] - before[0],
            "moved": now[1] - before[1],
        }
        for tenth, (before, now) in enumerate(pairwise(done), 1)
    ]


def _figure7(worlds: Callable[[], World]) -> Row:
    """Throughput with the categories where they were put, and where balancing puts them: by the paper's rule, and by
    one that begins earlier."""
    before, after, moved = _balanced(worlds(), Distribution())
    _, eager, eagerly_moved = _balanced(worlds(), Distribution(overload=EAGER))
    return {
        "before": before.throughput, "after": after.throughput, "eager": eager.throughput,
        "balance_before": before.balance, "balance_after": after.balance, "balance_eager": eager.balance,
        "moved": moved, "moved_eager": eagerly_moved,
    }  # fmt: skip


def _balanced(world: World, distribution: Distribution) -> tuple[Counted, Counted, int]:
    """What events cost before balancing and afterwards; and what it moved."""
    workers = SimulatedWorkers(DrtCluster(WORKERS, reading(world), distribution))
    for _ in train(workers, world, balance=False):
        pass
    events, merged = world.events(world.after), workers.moved
    before = work_of(workers, events)
    workers.balance()
    return before, work_of(workers, events), workers.moved - merged


def _swept(most: float, worlds: Callable[[], World]) -> Row:
    """For so many categories: figure 4's bars after training, and what DRt-Cluster comes to."""
    world = worlds()
    workers = SimulatedWorkers(DrtCluster(WORKERS, reading(world, most)))
    for _ in train(workers, world):
        pass
    after = work_of(workers, world.events(world.after))
    return {
        "most": reading(world, most).most, **{name: _categories_after(name, most, worlds()) for name in VARIANTS},
        "members": after.each(after.members), "messages": after.each(after.messages), "balance": after.balance,
        "throughput": after.throughput, "moved": workers.moved,
    }  # fmt: skip


def _categories_after(name: str, most: float, world: World) -> float:
    workers = SimulatedWorkers(DrtCluster(1, reading(world, most, name)))
    for _ in train(workers, world):
        pass
    after = work_of(workers, world.events(world.after))
    return after.each(after.categories)


def _total(some: Sequence[Counted]) -> Counted:
    total = Counted(np.zeros(len(some[0].work)))
    for name in ("events", "messages", "checks", "categories", "weakly", "members"):
        setattr(total, name, sum(getattr(each, name) for each in some))
    total.work = np.sum([each.work for each in some], axis=0)
    return total


def _summary(found: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    spreads = {kind: _means(found[kind], "partitioner") for kind in ("partitioners", "drift")}
    return {
        "figure4": _means(found["figure4"], "variant"),
        "figure5": {f"{most:g}": _by_merging(found["figure5"], most) for most in MERGED},
        "figure6": {name: spreads["partitioners"][name]["throughput"] for name in PARTITIONERS},
        "figure7": next(iter(_means([{"all": 0, **row} for row in found["figure7"]], "all").values())),
        **spreads,
        "sweep": list(_means(found["sweep"], "most").values()),
    }


def _by_merging(rows: Sequence[Row], most: float) -> dict[str, list[dict[str, float]]]:
    some = {name: [row for row in rows if (row["merging"], row["most"]) == (name, most)] for name in _MERGING}
    return {name: list(_means(rows, "tenth").values()) for name, rows in some.items()}


def _means(rows: Sequence[Row], key: str) -> dict[Any, dict[str, float]]:
    """By the value of `key`: the mean of every number over the seeds."""
    means: dict[Any, dict[str, float]] = {}
    for value in dict.fromkeys(row[key] for row in rows):
        some = [row for row in rows if row[key] == value]
        names = [name for name, each in some[0].items() if not isinstance(each, str) and name not in ("seed", "all")]
        means[value] = {name: round(float(np.mean([row[name] for row in some])), 4) for name in names}
    return means
