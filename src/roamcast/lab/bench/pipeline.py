"""`roamcast bench pipeline`: latency from publishing an event to reading its letter, end to end.

A real node and a real pipeline run as processes with their default settings on one machine. Sources publish at a steady
rate over HTTP; subscribers read their streams and acknowledge. All steps are included: group commit, fsync, Spark,
outbox, mailbox.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import numpy as np

from roamcast.client import AsyncClient
from roamcast.lab.bench.processes import free_port, node, pipeline

__all__ = ["RateResult", "bench_pipeline"]

_SOURCES = 10
_SUBSCRIBERS = 10
_POSTS_PER_S = 5  # by each source, with as many events as make up the rate
_WARM_UP_S = 10.0
_TIMEOUT_S = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RateResult:
    """The result for one rate. `missing` and `repeated` letters must be 0."""

    rate: int
    events: int
    p50_ms: float
    p99_ms: float
    missing: int
    repeated: int


@dataclass(slots=True)
class _LatencyRun:
    """Events sent and letters received, by event id. Events of the warm-up are not counted."""

    sent: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    repeated: int = 0

    def note(self, event: str) -> None:
        if event in self.seen:
            self.repeated += 1
        else:
            self.seen[event] = time.perf_counter()


def bench_pipeline(rates: Sequence[int], seconds: float, say: Say) -> dict[str, list[dict[str, float]]]:
    """Measure each rate, in events per second."""
    rows = []
    for rate in rates:
        with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as folder:
            data, port = Path(folder), free_port()
            say(f"rate {rate}/s: starting node and pipeline")
            with node(data, port), pipeline(data):
                say(f"rate {rate}/s: {_WARM_UP_S:.0f} s of warm-up, then {seconds:.0f} s measured")
                run = asyncio.run(_drive(f"http://127.0.0.1:{port}", rate, seconds))
        rows.append(asdict(_row(rate, run)))
    return {"rows": rows}


def _row(rate: int, run: _LatencyRun) -> RateResult:
    waits = np.array([run.seen[event] - sent for event, sent in run.sent.items() if event in run.seen]) * 1e3
    p50, p99 = (round(float(np.percentile(waits, q)), 1) if len(waits) else float("nan") for q in (50, 99))
    return RateResult(rate, len(run.sent), p50, p99, len(run.sent) - len(waits), run.repeated)


async def _drive(url: str, rate: int, seconds: float) -> _LatencyRun:
    run = _LatencyRun()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits) as http:
        subscribers = [AsyncClient(url, http=http) for _ in range(_SUBSCRIBERS)]
        for number, subscriber in enumerate(subscribers):
            await subscriber.register_subscriber(f"reader-{number}")
            await subscriber.subscribe(box=(8.0, 53.0, 9.0, 54.0), terms=["bench", f"reader-{number}"])
        sources = [AsyncClient(url, http=http) for _ in range(_SOURCES)]
        for number, source in enumerate(sources):
            await source.register_source(f"source-{number}", x=8.5, y=53.1)
        readers = [asyncio.create_task(_read(subscriber, run)) for subscriber in subscribers]
        began = time.perf_counter()
        await asyncio.gather(*(_publish(s, n, rate, began, seconds, run) for n, s in enumerate(sources)))
        end = time.perf_counter() + _TIMEOUT_S
        while run.sent.keys() - run.seen.keys() and time.perf_counter() < end:
            await asyncio.sleep(0.1)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return run


async def _publish(source: AsyncClient, number: int, rate: int, began: float, seconds: float, run: _LatencyRun) -> None:
    """Publish at fixed times, however long the last request took, so that slow responses are not hidden."""
    size = max(1, rate // (_SOURCES * _POSTS_PER_S))
    pause = size * _SOURCES / rate
    due = began + pause * number / _SOURCES
    count = 0
    while due < began + _WARM_UP_S + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        ids = [f"{number}/{count + i}" for i in range(size)]
        terms = ["bench", f"reader-{count // size % _SUBSCRIBERS}"]
        if due >= began + _WARM_UP_S:
            run.sent.update(dict.fromkeys(ids, due))
        await source.publish([{"id": id_, "terms": terms, "readings": {"level": 1.0}} for id_ in ids])
        count += size
        due += pause


async def _read(subscriber: AsyncClient, run: _LatencyRun) -> None:
    unacknowledged = 0
    async for letter in subscriber.letters(ack=False):
        run.note(letter.event["id"])
        unacknowledged += 1
        if unacknowledged >= 100:
            unacknowledged = 0
            await subscriber.acknowledge(letter)
