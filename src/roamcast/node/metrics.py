"""The metrics of a node, for Prometheus. Nothing is global: each app has its own registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from roamcast.deliver.outbox import PipelineStatus

__all__ = ["Metrics"]

_BYTES = (256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_SHOWN_CATEGORIES: Final = 100  # those with the most load; /healthz has more


class Metrics:
    """`pipeline` returns the counters of the pipeline's last status."""

    def __init__(self, pipeline: Callable[[], Mapping[str, int]]) -> None:
        self._registry = CollectorRegistry()
        self._pipeline = pipeline
        self.events_accepted = self._counter("roamcast_events_accepted", "Events journalled and acknowledged.")
        self.letters_posted = self._counter(
            "roamcast_letters_posted", "Letters stored, in mailboxes or in queues to other offices."
        )
        self.letters_delivered = self._counter("roamcast_letters_delivered", "Letters acknowledged by their receivers.")
        self.duplicate_letters = self._counter(
            "roamcast_duplicate_letters", "Letters dropped by mailboxes as duplicates."
        )
        self.moves_accepted = self._counter("roamcast_moves_accepted", "Positions accepted.")
        self.moves_stale = self._counter("roamcast_moves_stale", "Positions ignored because a newer one is known.")
        self.move_seconds = Histogram(
            "roamcast_move_group_seconds",
            "Time to handle and store a request group with moves.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.journal_seconds = Histogram(
            "roamcast_journal_seconds",
            "Time to journal the events of a request.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.request_bytes = Histogram(
            "roamcast_request_bytes", "Size of request bodies.", buckets=_BYTES, registry=self._registry
        )
        self._registry.register(_TotalsCollector(self.totals))

    def add_gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge that calls `value` at each scrape."""
        Gauge(name, text, registry=self._registry).set_function(value)

    def add_counter(self, name: str, text: str, value: Callable[[], int]) -> None:
        """Add a counter that calls `value` at each scrape."""
        self._registry.register(_CounterCollector(name, text, value))

    def add_counters(self, name: str, text: str, label: str, values: Callable[[], Mapping[str, int]]) -> None:
        """Add counters that differ in a label. `values` is called at each scrape."""
        self._registry.register(_LabelledCollector(name, text, label, values))

    def add_subscriptions(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Add the number of subscriptions in each state, of bindings and of agents."""
        self._registry.register(_SubscriptionCollector(counts))

    def add_pipeline(self, status: Callable[[], PipelineStatus | None]) -> None:
        """Add the metrics of the pipeline's last batch."""
        self._registry.register(_PipelineCollector(status))

    def totals(self) -> dict[str, int]:
        """Totals of the pipeline and this node."""
        pipeline = self._pipeline()
        return {
            "duplicates_dropped": pipeline.get("duplicates_dropped", 0) + _value(self.duplicate_letters),
            "dead_letters": pipeline.get("dead_letters", 0),
        }

    def counters(self) -> dict[str, int]:
        """The counters that the page shows."""
        return {
            "events_accepted": _value(self.events_accepted),
            "letters_posted": _value(self.letters_posted),
            "letters_delivered": _value(self.letters_delivered),
            **self.totals(),
        }

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self._registry)


class _TotalsCollector(Collector):
    def __init__(self, totals: Callable[[], Mapping[str, int]]) -> None:
        self._totals = totals

    def collect(self) -> Iterable[Metric]:
        texts = {
            "duplicates_dropped": "Events and letters dropped as duplicates.",
            "dead_letters": "Journal records that cannot be processed.",
        }
        for name, value in self._totals().items():
            yield CounterMetricFamily(f"roamcast_{name}", texts[name], value=value)


class _CounterCollector(Collector):
    def __init__(self, name: str, text: str, value: Callable[[], int]) -> None:
        self._name, self._text, self._value = name, text, value

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, value=self._value())


class _LabelledCollector(Collector):
    def __init__(self, name: str, text: str, label: str, values: Callable[[], Mapping[str, int]]) -> None:
        self._name, self._text, self._label, self._values = name, text, label, values

    def collect(self) -> Iterable[Metric]:
        counters = CounterMetricFamily(self._name, self._text, labels=[self._label])
        for label, value in dict(self._values()).items():
            counters.add_metric([label], value)
        yield counters


class _PipelineCollector(Collector):
    def __init__(self, status: Callable[[], PipelineStatus | None]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        texts = {
            "postings_scanned": "Index postings scanned in the last batch.",
            "matches": "Matches of plan match in the last batch.",
            "postings_scanned_per_match": "Index postings scanned per match in the last batch.",
            "segments": "Index segments.",
            "state_bytes": "Size of the pipeline state on disk.",
            "moving_regions": "Moving regions.",
        }
        status = self._status()
        figures = {} if status is None else dict(status.metrics)
        if figures.get("matches"):
            figures["postings_scanned_per_match"] = figures.get("postings_scanned", 0) / figures["matches"]
        for name, text in texts.items():
            if name in figures:
                yield GaugeMetricFamily(f"roamcast_pipeline_{name}", text, value=figures[name])
        steps = GaugeMetricFamily(
            "roamcast_pipeline_step_seconds", "Time of each step of the last batch.", labels=["step"]
        )
        for step, seconds in ({} if status is None else status.step_seconds).items():
            steps.add_metric([step], seconds)
        yield steps
        batches = CounterMetricFamily(
            "roamcast_pipeline_batches",
            "Batches since the pipeline started, by where they were processed.",
            labels=["by"],
        )
        if status is not None:
            batches.add_metric(["driver"], status.batches_here)
            batches.add_metric(["job"], status.batches_by_jobs)
        yield batches
        if status is not None and status.partitioning is not None:
            yield from _partitioning_metrics(status.partitioning)


def _partitioning_metrics(status: Mapping[str, Any]) -> Iterable[Metric]:
    """Metrics of the shards, and of the categories with the most load, if there are some."""
    prefix = "roamcast_pipeline_"
    info = GaugeMetricFamily(f"{prefix}partitioner", "The partitioner in use: 1.", labels=["partitioner"])
    info.add_metric([status["partitioner"]], 1)
    yield info
    yield GaugeMetricFamily(
        f"{prefix}imbalance", "Load of the busiest shard in the last batch, relative to the mean.", status["imbalance"]
    )
    counters = {"moved": "Subscriptions that went to another shard.", "merges": "Merges of categories."}
    for name, text in counters.items():
        if name in status:
            yield CounterMetricFamily(f"{prefix}{name}", text, status[name])
    texts = {
        "subscriptions": "Subscriptions in each shard.",
        "messages": "Events sent to each shard in the last batch.",
        "checks": "Postings compared in each shard in the last batch.",
        "matches": "Matches of each shard in the last batch.",
    }
    for name, text in texts.items():
        shards = GaugeMetricFamily(f"{prefix}shard_{name}", text, labels=["worker"])
        for shard in status["shards"]:
            shards.add_metric([str(shard["worker"])], shard[name])
        yield shards
    if "categories" in status:
        yield GaugeMetricFamily(f"{prefix}categories", "Categories.", status["category_count"])
        for name, text in (("size", "Subscriptions in a category."), ("load", "Load since the last balancing.")):
            family = GaugeMetricFamily(f"{prefix}category_{name}", text, labels=["category", "worker"])
            for one in status["categories"][:_SHOWN_CATEGORIES]:
                family.add_metric([str(one["category"]), str(one["worker"])], one[name])
            yield family


class _SubscriptionCollector(Collector):
    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        counts = dict(self._counts())
        for name, text in (("bindings", "Live bindings."), ("agents", "Binding agents.")):
            yield GaugeMetricFamily(f"roamcast_{name}", text, value=counts.pop(name, 0))
        states = GaugeMetricFamily("roamcast_subscriptions", "Subscriptions by state.", labels=["state"])
        for state, count in counts.items():
            states.add_metric([state], count)
        yield states


def _value(counter: Counter) -> int:
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return int(next(sample.value for sample in samples if sample.name.endswith("_total")))
