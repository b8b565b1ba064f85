"""`roamcast reproduce drtcluster`: figures 4 to 7 of the DRt-Cluster paper, and a comparison of all partitioners.

Throughput is counted, so that it is the same on every machine: events for each unit of work of the busiest worker. A
message, a check of a subscription and a change are one unit each. It is also timed on Spark, see `throughput`.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from roamcast.durable import make_folder
from roamcast.errors import CorruptionError
from roamcast.lab.experiments.drtcluster.data import GeoNames, PlaceStream
from roamcast.lab.experiments.drtcluster.plots import DrtClusterPlots
from roamcast.lab.experiments.drtcluster.run import (
    EAGER,
    PARTITIONERS,
    VARIANTS,
    WORKERS,
    WorkCounts,
    count_work,
    measure_drift,
    measure_fixed,
    parameters,
    train,
)
from roamcast.lab.experiments.drtcluster.throughput import configurations, measure_throughput
from roamcast.lab.experiments.drtcluster.verdicts import compare_curve, judge_all
from roamcast.lab.experiments.statistics import write_csv
from roamcast.lab.models.workers import SimulatedWorkers
from roamcast.match.partitioners.drtcluster import Distribution, DrtCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["reproduce"]

Say = Callable[[str], None]
Row = dict[str, Any]
OnSpark: TypeAlias = "Callable[[Callable[[SparkSession], dict[str, list[Row]]]], dict[str, list[Row]]]"

SWEEP: Final = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
"""CMaxNumTh, relative to the number of subscriptions."""
MERGE_LIMITS: Final = (0.1, 0.2, 0.5)
"""CMaxNumTh in figure 5, relative to the number of subscriptions: with more there is less to merge."""
_SWEEP_SEEDS: Final = 2
_TIMED_SEEDS: Final = 5
_FIRST_SEED: Final = 2_000  # `curve` was tuned with other seeds
_MERGING: Final = {"InNode": False, "InAndBetNode": True}


def reproduce(
    folder: Path, say: Say, on_spark: OnSpark | None = None, *, seeds: int = 10, events: int = 100_000
) -> dict[str, Any]:
    """Write all figures to `folder` as PNG and CSV, and return them as means over the seeds. Uses all cores.

    `on_spark` calls a function with a Spark session, to time throughput with the first seeds; without it, nothing is
    timed.
    """
    plots = DrtClusterPlots()
    places = len(GeoNames.read().x)  # fail early if it is not installed
    make_folder(folder)
    events = min(events, places * 4 // 5)
    results: dict[str, list[Row]] = {}
    processes = min(seeds, os.cpu_count() or 1)
    say(f"counting: {seeds} seeds, {processes} at a time; the first two take longest")
    with get_context("spawn").Pool(processes, _ignore_interrupts) as pool:
        for done, rows in enumerate(pool.imap(partial(_run_seed, events), range(seeds)), 1):
            say(f"finished seed {done} of {seeds}")
            for name, selected in rows.items():
                results.setdefault(name, []).extend(selected)
    if on_spark is not None:
        results |= on_spark(partial(_time, min(seeds, _TIMED_SEEDS), events, say))
    files = [write_csv(folder / f"drtcluster-{name}.csv", rows) for name, rows in results.items()]
    figures, verdicts = _summary(results), judge_all(results)
    return {
        **figures,
        "verdicts": [{**verdict._asdict(), "ours": verdict.ours} for verdict in verdicts],
        "curve": {kind: compare_curve(results[kind]) for kind in ("partitioners", "drift")},
        "seeds": seeds,
        "files": [str(file) for file in (*files, *plots.draw_all(folder, figures))],
    }


def _time(seeds: int, events: int, say: Say, spark: SparkSession) -> dict[str, list[Row]]:
    """Time throughput on Spark. Raises CorruptionError if not all partitioners and matchers find the same matches."""
    say(f"timing on Spark: {seeds} seeds, about five minutes each")
    began = time.monotonic()

    def progress(done: int, total: int) -> None:
        if done:
            say(f"timed {done} of {total} in {time.monotonic() - began:.0f} s")

    with tempfile.TemporaryDirectory(prefix="roamcast-drtcluster-") as folder:
        chosen = range(_FIRST_SEED, _FIRST_SEED + seeds)
        # The first measurement is slower than all others, and does not count.
        measure_throughput(spark, Path(folder), chosen[:1], events, lambda *_: None, configurations()[:1])
        results = measure_throughput(spark, Path(folder), chosen, events, progress)
    for seed in chosen:
        if len({row["matches"] for row in results["throughput"] if row["seed"] == seed}) > 1:
            hint = "this is a bug in a partitioner or matcher"
            raise CorruptionError(f"partitioners or matchers find different matches with seed {seed}", hint=hint)
    return {name: [{**row, "seed": row["seed"] - _FIRST_SEED} for row in rows] for name, rows in results.items()}


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent process, which ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_seed(events: int, seed: int) -> dict[str, list[Row]]:
    """Run all experiments with one seed."""
    places = GeoNames.read()
    places_by_terms = {"words": places, "few values": places.with_few_values()}

    def stream(terms: str = "words") -> PlaceStream:
        return PlaceStream(places_by_terms[terms], _FIRST_SEED + seed, events)

    results = {
        "figure4": [_figure4(name, stream()) for name in VARIANTS],
        "figure5": [
            {"terms": terms, **row}
            for terms, most, name in product(places_by_terms, MERGE_LIMITS, _MERGING)
            for row in _figure5(name, most, stream(terms))
        ],
        "figure7": [_figure7(stream)],
        **{
            kind: [{"partitioner": name, **measure(make, stream())._asdict()} for name, make in PARTITIONERS.items()]
            for kind, measure in (("partitioners", measure_fixed), ("drift", measure_drift))
        },
        "sweep": [_measure_limit(most, stream) for most in SWEEP] if seed < _SWEEP_SEEDS else [],
    }
    return {name: [{"seed": seed, **row} for row in rows] for name, rows in results.items()}


def _figure4(name: str, stream: PlaceStream) -> Row:
    """Count the categories that an event is sent to, by both readings of the paper."""
    workers = SimulatedWorkers(DrtCluster(1, parameters(stream, variant=name)))
    training = _total([counted for _, counted in train(workers, stream, by_overlap=True)])
    after = count_work(workers, stream.events(stream.after), by_overlap=True)
    return {
        "variant": name,
        "training": training.each(training.categories),
        "after": after.each(after.categories),
        "training_weak": training.each(training.overlaps),
        "after_weak": after.each(after.overlaps),
        "members_after": after.each(after.members),
        "checks_after": after.each(after.checks),
    }


def _figure5(name: str, most: float, stream: PlaceStream) -> list[Row]:
    """Count the subscriptions that merging moved to another category or worker, in each tenth of the training."""
    cluster = DrtCluster(WORKERS, parameters(stream, most), Distribution(between=_MERGING[name]))
    workers, done = SimulatedWorkers(cluster), [(0, 0)] * 11
    for tenth, _ in train(workers, stream):
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


def _figure7(streams: Callable[[], PlaceStream]) -> Row:
    """Measure throughput before balancing and after it, by the paper's rule and by one that starts earlier."""
    before, after, moved = _measure_balancing(streams(), Distribution())
    _, eager, eagerly_moved = _measure_balancing(streams(), Distribution(overload=EAGER))
    return {
        "before": before.throughput, "after": after.throughput, "eager": eager.throughput,
        "balance_before": before.balance, "balance_after": after.balance, "balance_eager": eager.balance,
        "moved": moved, "moved_eager": eagerly_moved,
    }  # fmt: skip


def _measure_balancing(stream: PlaceStream, distribution: Distribution) -> tuple[WorkCounts, WorkCounts, int]:
    """Return the counts of events before and after balancing, and how many subscriptions it moved."""
    workers = SimulatedWorkers(DrtCluster(WORKERS, parameters(stream), distribution))
    for _ in train(workers, stream, balance=False):
        pass
    events, merged = stream.events(stream.after), workers.moved
    before = count_work(workers, events)
    workers.balance()
    return before, count_work(workers, events), workers.moved - merged


def _measure_limit(most: float, streams: Callable[[], PlaceStream]) -> Row:
    """Measure figure 4 after training, and DRt-Cluster, for one CMaxNumTh."""
    stream = streams()
    workers = SimulatedWorkers(DrtCluster(WORKERS, parameters(stream, most)))
    for _ in train(workers, stream):
        pass
    after = count_work(workers, stream.events(stream.after))
    return {
        "most": parameters(stream, most).max_categories,
        **{name: _categories_after(name, most, streams()) for name in VARIANTS},
        "members": after.each(after.members), "messages": after.each(after.messages), "balance": after.balance,
        "throughput": after.throughput, "moved": workers.moved,
    }  # fmt: skip


def _categories_after(name: str, most: float, stream: PlaceStream) -> float:
    workers = SimulatedWorkers(DrtCluster(1, parameters(stream, most, name)))
    for _ in train(workers, stream):
        pass
    after = count_work(workers, stream.events(stream.after))
    return after.each(after.categories)


def _total(selected: Sequence[WorkCounts]) -> WorkCounts:
    total = WorkCounts(np.zeros(len(selected[0].work)))
    for name in ("events", "messages", "checks", "categories", "overlaps", "members"):
        setattr(total, name, sum(getattr(each, name) for each in selected))
    total.work = np.sum([each.work for each in selected], axis=0)
    return total


def _summary(results: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    spreads = {kind: _means(results[kind], "partitioner") for kind in ("partitioners", "drift")}
    return {
        "figure4": _means(results["figure4"], "variant"),
        "figure5": {
            terms: {f"{most:g}": _by_merging(results["figure5"], terms, most) for most in MERGE_LIMITS}
            for terms in dict.fromkeys(row["terms"] for row in results["figure5"])
        },
        "figure6": {name: spreads["partitioners"][name]["throughput"] for name in PARTITIONERS},
        "figure7": next(iter(_means([{"all": 0, **row} for row in results["figure7"]], "all").values())),
        **spreads,
        "sweep": list(_means(results["sweep"], "most").values()),
        "throughput": _timed_means(results.get("throughput", ()), ("matcher", "most", "workers", "partitioner")),
        "balancing": _timed_means(results.get("balancing", ()), ("rule", "matcher")),
    }


def _timed_means(rows: Sequence[Row], keys: tuple[str, ...]) -> list[Row]:
    """Return the means over the seeds, for each combination of the values of `keys`."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        {
            **dict(zip(keys, values, strict=True)),
            **{what: float(np.mean([row[what] for row in group])) for what in group[0] if what not in (*keys, "seed")},
        }
        for values, group in groups.items()
    ]


def _by_merging(rows: Sequence[Row], terms: str, most: float) -> dict[str, list[dict[str, float]]]:
    rows = [row for row in rows if (row["terms"], row["most"]) == (terms, most)]
    selected = {name: [row for row in rows if row["merging"] == name] for name in _MERGING}
    return {name: list(_means(rows, "tenth").values()) for name, rows in selected.items()}


def _means(rows: Sequence[Row], key: str) -> dict[Any, dict[str, float]]:
    """Return the mean of every number over the seeds, by the value of `key`."""
    means: dict[Any, dict[str, float]] = {}
    for value in dict.fromkeys(row[key] for row in rows):
        selected = [row for row in rows if row[key] == value]
        names = [
            name for name, each in selected[0].items() if not isinstance(each, str) and name not in ("seed", "all")
        ]
        means[value] = {name: round(float(np.mean([row[name] for row in selected])), 4) for name in names}
    return means
