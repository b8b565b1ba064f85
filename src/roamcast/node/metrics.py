"""What /metrics tells, for Prometheus. Each app has its own; nothing is global."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from roamcast.deliver.outbox import PipelineStatus

__all__ = ["Metrics"]

_BYTES = (256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """`pipeline` gives the counters of the pipeline that writes to us, as its status file has them."""

    def __init__(self, pipeline: Callable[[], Mapping[str, int]]) -> None:
        self._registry = CollectorRegistry()
        self._pipeline = pipeline
        self.events_accepted = self._counter("roamcast_events_accepted", "Events journalled and acknowledged.")
        self.letters_posted = self._counter(
            "roamcast_letters_posted", "Letters stored, in mailboxes or on their way there."
        )
        self.letters_delivered = self._counter("roamcast_letters_delivered", "Letters acknowledged by their receivers.")
        self.duplicate_letters = self._counter("roamcast_duplicate_letters", "Letters a mailbox had had, and dropped.")
        self.moves_accepted = self._counter("roamcast_moves_accepted", "Positions taken.")
        self.moves_stale = self._counter("roamcast_moves_stale", "Positions older than what was known, and ignored.")
        self.move_seconds = Histogram(
            "roamcast_move_group_seconds",
            "From taking up a group of requests with moves until it is on disk.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.journal_seconds = Histogram(
            "roamcast_journal_seconds",
            "From handing events to the journal until they are on disk.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.request_bytes = Histogram(
            "roamcast_request_bytes", "Size of request bodies.", buckets=_BYTES, registry=self._registry
        )
        self._registry.register(_Sums(self.sums))

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show what `value` gives whenever it is asked for."""
        Gauge(name, text, registry=self._registry).set_function(value)

    def counted(self, name: str, text: str, value: Callable[[], int]) -> None:
        """As `gauge`, of what only grows."""
        self._registry.register(_Counted(name, text, value))

    def subscriptions(self, census: Callable[[], Mapping[str, int]]) -> None:
        """Show how many subscriptions are in each state, and how many bindings and agents there are."""
        self._registry.register(_Census(census))

    def pipeline_figures(self, card: Callable[[], PipelineStatus | None]) -> None:
        """Show the metrics of the last batch from the pipeline's status."""
        self._registry.register(_Card(card))

    def sums(self) -> dict[str, int]:
        """Counters that add up what the pipeline and this node have dropped or could not process."""
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
            **self.sums(),
        }

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self._registry)


class _Sums(Collector):
    def __init__(self, sums: Callable[[], Mapping[str, int]]) -> None:
        self._sums = sums

    def collect(self) -> Iterable[Metric]:
        texts = {
            "duplicates_dropped": "Copies of events and letters that were dropped.",
            "dead_letters": "Journal records that could not be processed.",
        }
        for name, value in self._sums().items():
            yield CounterMetricFamily(f"roamcast_{name}", texts[name], value=value)


class _Counted(Collector):
    def __init__(self, name: str, text: str, value: Callable[[], int]) -> None:
        self._name, self._text, self._value = name, text, value

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, value=self._value())


class _Card(Collector):
    def __init__(self, card: Callable[[], PipelineStatus | None]) -> None:
        self._card = card

    def collect(self) -> Iterable[Metric]:
        texts = {
            "candidates": "Postings of the index that the last batch looked at.",
            "matches": "Matches of the match plan in the last batch.",
            "candidates_per_match": "Postings looked at for each match, in the last batch.",
            "segments": "Segments of the index.",
            "state_bytes": "Size of the pipeline's state on disk.",
            "moving_regions": "Regions around subscribers who may move.",
        }
        card = self._card()
        figures = {} if card is None else dict(card.metrics)
        if figures.get("matches"):
            figures["candidates_per_match"] = figures.get("candidates", 0) / figures["matches"]
        for name, text in texts.items():
            if name in figures:
                yield GaugeMetricFamily(f"roamcast_pipeline_{name}", text, value=figures[name])
        steps = GaugeMetricFamily(
            "roamcast_pipeline_step_seconds", "Time that each step of the last batch took.", labels=["step"]
        )
        for step, seconds in ({} if card is None else card.step_seconds).items():
            steps.add_metric([step], seconds)
        yield steps


class _Census(Collector):
    def __init__(self, census: Callable[[], Mapping[str, int]]) -> None:
        self._census = census

    def collect(self) -> Iterable[Metric]:
        counts = dict(self._census())
        for name, text in (("bindings", "Live bindings."), ("agents", "Binding agents.")):
            yield GaugeMetricFamily(f"roamcast_{name}", text, value=counts.pop(name, 0))
        states = GaugeMetricFamily("roamcast_subscriptions", "Subscriptions by state.", labels=["state"])
        for state, count in counts.items():
            states.add_metric([state], count)
        yield states


def _value(counter: Counter) -> int:
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return int(next(sample.value for sample in samples if sample.name.endswith("_total")))
