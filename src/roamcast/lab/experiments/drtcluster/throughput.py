"""Figures 6 and 7 as the paper measured them: throughput, timed through Spark in the plan of the pipeline.

Training runs in the driver's process, where it decides the same as on Spark. A measurement is one batch: subscriptions
are replaced, then events are matched. There are two throughputs. One is events per second, from the records of the
batch to matches in the driver. The other is events per CPU second of the busiest worker: what workers on machines of
their own could do, if everything else kept up with them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.records import REMOVAL, SUBSCRIPTION, Record
from roamcast.lab.batches import Batches, bodies_of, shard_balance, write_events
from roamcast.lab.experiments.drtcluster.data import GeoNames, PlaceStream
from roamcast.lab.experiments.drtcluster.run import EAGER, MOST, parameters
from roamcast.match.partitioners.categories import Distribution
from roamcast.match.port import Subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from roamcast.pipeline.query.batch_state import BatchSettings, PreparedBatch
    from roamcast.pipeline.state.partitioning import MatcherName, PartitionerName

__all__ = [
    "BALANCING_RULES", "MATCHERS", "THROUGHPUTS", "WORKERS", "Configuration", "configurations", "measure_throughput",
]  # fmt: skip

Row = dict[str, Any]

WORKERS: Final = (1, 2, 4)
FEW_CATEGORIES: Final = 0.1
"""CMaxNumTh relative to the number of subscriptions, for a second comparison with the kd-tree."""
MATCHERS: Final[tuple[MatcherName, ...]] = ("index", "one_by_one")
THROUGHPUTS: Final = {"events_per_s": "through Spark", "events_per_cpu_s": "by CPU time of the busiest worker"}
BALANCING_RULES: Final = {"paper": Distribution(), "eager": Distribution(overload=EAGER)}
_NAMES: Final[Mapping[str, PartitionerName]] = {
    "DRt-Cluster": "drtcluster", "kd-tree": "kdtree", "hashing": "hashing", "curve": "curve",
}  # fmt: skip
_STEPS: Final = 4  # batches of the training
_TRAINING: Final = 0.4  # events of the training, relative to those of the experiment
_MEASURED: Final = 0.4
_REPLACED: Final = 0.02  # of the subscriptions
_TIMES: Final = 2  # measurements, of which the best counts: the first starts workers and fills their caches
_NEVER: Final = 1 << 62


class Configuration(NamedTuple):
    """What is measured: a partitioner for figure 6, or balancing by a rule for figure 7.

    `most` is CMaxNumTh relative to the number of subscriptions. With the matcher one_by_one, all partitioners have as
    many units.
    """

    partitioner: str
    workers: int
    most: float = MOST
    rule: str = ""


def configurations() -> list[Configuration]:
    """Return all configurations that the experiment measures with each seed."""
    return [
        *(Configuration(name, workers) for workers in WORKERS for name in _NAMES),
        *(Configuration(name, WORKERS[-1], FEW_CATEGORIES) for name in ("DRt-Cluster", "kd-tree")),
        *(Configuration("DRt-Cluster", WORKERS[-1], rule=rule) for rule in BALANCING_RULES),
    ]


def measure_throughput(
    spark: SparkSession,
    folder: Path,
    seeds: Sequence[int],
    events: int,
    progress: Callable[[int, int], None],
    selected: Sequence[Configuration] | None = None,
) -> dict[str, list[Row]]:
    """Return rows of `throughput` (figure 6) and `balancing` (figure 7). `folder` is for files that are not kept.

    Every other seed is measured in reverse order, so that a machine that becomes faster or slower favours nobody.
    `progress` is called with the number of measured configurations and their total.
    """
    places, chosen = GeoNames.read(), configurations() if selected is None else selected
    results: dict[str, list[Row]] = {"throughput": [], "balancing": []}
    for number, seed in enumerate(seeds):
        after = PlaceStream(places, seed, events).after[: max(int(_MEASURED * events), 1)]
        records = write_events(spark, folder / f"events-{seed}", places.events(after))
        for done, configuration in enumerate(chosen[::-1] if number % 2 else chosen):
            progress(number * len(chosen) + done, len(seeds) * len(chosen))
            here = folder / "state"
            trained = _Trained(here, PlaceStream(places, seed, events), records, configuration)
            if configuration.rule:
                fixed: Row = {"seed": seed, "rule": configuration.rule}
                results["balancing"] += [{**fixed, **row} for row in trained.measure_balancing()]
            else:
                name, workers, most, _ = configuration
                fixed = {"seed": seed, "partitioner": name, "workers": workers, "most": most}
                results["throughput"] += [{**fixed, **row} for row in trained.measure()]
            shutil.rmtree(here)
        records.unpersist()
        shutil.rmtree(folder / f"events-{seed}")
    progress(len(seeds) * len(chosen), len(seeds) * len(chosen))
    return results


class _Trained:
    """A partitioner after training, in a batch state of its own."""

    def __init__(self, folder: Path, stream: PlaceStream, records: DataFrame, configuration: Configuration) -> None:
        self._stream = stream
        self._units = parameters(stream, configuration.most).max_categories
        self._added = self._removed = 0
        training = stream.training[: max(int(_TRAINING * len(stream.training)), _STEPS)]
        # The load is balanced twice, as in the paper; if balancing itself is measured, not before that.
        self._settings = _settings(configuration, stream, _NEVER if configuration.rule else len(training) // 2)
        none = np.empty(0)
        nobody = Subscriptions(none, none, none, none, pa.array([], pa.list_(pa.string())))
        self._batches = Batches(folder, nobody, records, self._settings)
        for step in range(_STEPS):
            count = (step + 1) * stream.count // _STEPS - self._added
            self._batches.run_here(list(self._add(count)), stream.events(training[step::_STEPS]))
        self._last_events = stream.events(training[::_STEPS])

    def measure(self) -> list[Row]:
        """Measure throughput with each matcher."""
        self._batches.commit(self._batches.prepare(self._batches.records([])))  # move what was planned to move
        replaced = max(int(_REPLACED * self._stream.count), 1)
        records = self._batches.records([*self._remove(replaced), *self._add(replaced)])
        began = time.perf_counter()
        prepared = self._batches.prepare(records)
        changing = time.perf_counter() - began
        rows = [{"matcher": matcher, **self._measure(prepared, matcher, changing)} for matcher in MATCHERS]
        self._batches.commit(prepared)
        return rows

    def measure_balancing(self) -> list[Row]:
        """Measure throughput before and after balancing, with each matcher."""
        before = self.measure()
        self._batches.restart(replace(self._settings, rebalance_events=1))
        self._batches.run_here([], self._last_events)  # then balancing is due
        after = self.measure()
        return [
            {
                "matcher": one["matcher"],
                **{f"{what}_before": one[what] for what in (*THROUGHPUTS, "balance")},
                **{f"{what}_after": other[what] for what in (*THROUGHPUTS, "balance")},
                "moved": other["balanced"] - one["balanced"],
            }
            for one, other in zip(before, after, strict=True)
        ]

    def _measure(self, prepared: PreparedBatch, matcher: MatcherName, changing: float) -> Row:
        from roamcast.pipeline.state.load import LoadRows

        units = self._units if matcher == "one_by_one" else 0
        prepared = replace(prepared, context=prepared.context._replace(units=units))
        seconds, busiest = [], []
        for _ in range(_TIMES):
            began = time.perf_counter()
            matched = self._batches.match(prepared)
            seconds.append(time.perf_counter() - began)
            busiest.append(max(self._batches.worker_seconds(prepared)))
        load, sharded = LoadRows.of_matched(matched), prepared.index.sharded
        shards = load.of_shards
        return {
            "events_per_s": self._batches.event_count / (changing + min(seconds)),
            "events_per_cpu_s": self._batches.event_count / min(busiest),
            "messages": int(shards.messages.sum()) / self._batches.event_count,
            "comparisons": int(shards.checks.sum()) / self._batches.event_count,
            "balance": shard_balance(load, self._settings.workers),
            "matches": int(pc.sum(pc.list_value_length(matched["subscriptions"])).as_py() or 0),
            "balanced": sharded.partitioning.values.get("balanced", 0) if sharded else 0,
        }

    def _add(self, count: int) -> Iterator[Record]:
        for body in bodies_of(self._stream.draw(count)):
            yield Record(SUBSCRIPTION, f"s{self._added}", id=f"s{self._added}", time=1, body=body)
            self._added += 1

    def _remove(self, count: int) -> Iterator[Record]:
        """Remove the oldest subscriptions."""
        for _ in range(count):
            yield Record(REMOVAL, f"s{self._removed}", id=f"s{self._removed}", time=2)
            self._removed += 1


def _settings(configuration: Configuration, stream: PlaceStream, rebalance_events: int) -> BatchSettings:
    from roamcast.pipeline.query.batch_state import BatchSettings
    from roamcast.pipeline.state.partitioning import PartitioningSettings

    partitioning = PartitioningSettings(
        _NAMES[configuration.partitioner],
        categories=parameters(stream, configuration.most),
        distribution=BALANCING_RULES[configuration.rule or "paper"],
        imbalance=1.0,  # kd-tree and curve: balance whenever the load is more uneven than by chance
    )
    return BatchSettings(workers=configuration.workers, rebalance_events=rebalance_events, partitioning=partitioning)
