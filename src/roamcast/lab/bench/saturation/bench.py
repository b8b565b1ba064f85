"""`roamcast bench pipeline --saturate`: the highest rate from HTTP to acknowledged letters.

A node and a pipeline run as processes with their default settings, beside the load generator. Connections publish as
fast as responses come, but not more than a window ahead of the letters: so the rate is one that can be sustained
without growing lag. A reader pulls and acknowledges all mailboxes, and checks each letter: that its subscription
matches its event, that numbers are dense, and that the events of a source are in order. At the end none is missing.

Peers match the same events with the same subscriptions afterwards. What they do not do is said beside their figures.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import numpy as np
import orjson

from roamcast.client import Client
from roamcast.errors import RoamcastError
from roamcast.lab.bench.federation.domains import Domain
from roamcast.lab.bench.processes import pipeline, until
from roamcast.lab.bench.saturation.load import Body, Progress, publishing_and_reading
from roamcast.lab.bench.saturation.memory import MemorySampler
from roamcast.lab.bench.saturation.peers.port import Peer
from roamcast.lab.bench.saturation.peers.run import measure_peer
from roamcast.lab.bench.saturation.world import EventBatch, SaturationLoad, World, event_batches

__all__ = ["bench_saturation"]

Say: TypeAlias = Callable[[str], None]
Tally: TypeAlias = dict[str, Any]

_RECEIVERS: Final = 1_000
_SOURCES: Final = 100
_SUBSCRIPTIONS_PER_REQUEST: Final = 1_000
_END_S: Final = 120.0


def bench_saturation(loads: Sequence[SaturationLoad], say: Say, peers: Sequence[Peer] = ()) -> dict[str, Any]:
    """Measure each load, and after each the peers."""
    rows: list[dict[str, Any]] = []
    for load in loads:
        what = {"subscriptions": load.subscriptions, "letters_per_event": load.letters, "body": load.body}
        world = World.of(load.subscriptions, load.letters)
        batches = event_batches(world, load)
        say(f"{load.subscriptions:,} subscriptions, {load.letters:g} letters an event, {load.body}: starting")
        rows.append({**what, "system": "roamcast", **_run(load, world, batches, say)})
        say(f"roamcast: {rows[-1]['events_per_s']} events/s, {rows[-1]['matches_per_s']} letters/s")
        for peer in peers:
            say(f"{peer.name}: starting")
            rows.append({**what, "system": peer.name, **measure_peer(peer, load, world, batches)})
            say(f"{peer.name}: {rows[-1].get('skipped') or str(rows[-1]['events_per_s']) + ' events/s'}")
    return {"rows": rows}


def _run(load: SaturationLoad, world: World, batches: Sequence[EventBatch], say: Say) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as scratch:
        domain = Domain("local", Path(scratch))
        begun = time.perf_counter()
        with domain.node() as node, pipeline(domain.data) as running:
            readers, sources = _register(domain)
            _subscribe(domain, world, readers)
            domain.wait_for_pipeline()
            setup_s = time.perf_counter() - begun
            bodies = [Body.of(batch, world, load.body) for batch in batches]
            say(f"{load.warm_up_s:.0f} s of warm-up, then {load.seconds:.0f} s measured")
            progress = Progress(world.copies, len(bodies[0].cells), bodies={source: {} for source in sources})
            memory = MemorySampler({"node": node.pid, "load": os.getpid()}, spark=running.pid)
            with (
                memory.running(),
                publishing_and_reading(domain.url, progress, readers, sources, bodies, load.body),
            ):
                until(lambda: progress.error is not None or progress.letters > 0, _END_S, "the first letters")
                time.sleep(load.warm_up_s)
                first = _sample(progress)
                time.sleep(load.seconds)
                last = _sample(progress)
                with progress.lock:
                    progress.over = True
                until(lambda: progress.error is not None or progress.is_complete, _END_S, "the last letters")
            if progress.error is not None:
                raise RoamcastError(progress.error, hint="this is a bug: please report it")
            metrics = domain.metrics()
    seconds = last["at"] - first["at"]
    lags = np.array(progress.lags[first["lags"] : last["lags"]] or progress.lags) * 1000
    jobs, here = (metrics.get(f'roamcast_pipeline_batches_total{{by="{by}"}}', 0.0) for by in ("job", "driver"))
    return {
        "events_per_s": round((last["published"] - first["published"]) / seconds),
        "matches_per_s": round((last["letters"] - first["letters"]) / seconds),
        "lag_p50_ms": round(float(np.percentile(lags, 50))), "lag_p99_ms": round(float(np.percentile(lags, 99))),
        "events": progress.published, "matches": progress.letters, "wrong": progress.expected - progress.letters,
        "setup_s": round(setup_s, 1), **memory.peaks(), "matched_by_jobs": round(jobs / max(1.0, jobs + here), 2),
    }  # fmt: skip


def _register(domain: Domain) -> tuple[list[str], dict[str, str]]:
    """The tokens of receivers, and of sources by id."""

    def register(kind: str, number: int) -> str:
        with Client(domain.url, http=http) as client:
            add = client.register_source if kind == "source" else client.register_subscriber
            return add(f"{kind}-{number}")

    with httpx.Client(timeout=60.0) as http, ThreadPoolExecutor(8) as pool:
        readers = list(pool.map(lambda number: register("reader", number), range(_RECEIVERS)))
        sources = list(pool.map(lambda number: register("source", number), range(_SOURCES)))
    return readers, {f"source-{number}": token for number, token in enumerate(sources)}


def _subscribe(domain: Domain, world: World, readers: Sequence[str]) -> None:
    """Subscription n belongs to reader n mod the number of readers."""
    total = world.subscriptions

    def subscribe(reader: int) -> None:
        numbers = range(reader, total, _RECEIVERS)
        for first in range(0, len(numbers), _SUBSCRIPTIONS_PER_REQUEST):
            rows = [world.subscription(number) for number in numbers[first : first + _SUBSCRIPTIONS_PER_REQUEST]]
            headers = {"authorization": f"Bearer {readers[reader]}"}
            response = http.post(f"{domain.url}/v1/subscriptions", content=orjson.dumps(rows), headers=headers)
            response.raise_for_status()

    with httpx.Client(timeout=600.0) as http, ThreadPoolExecutor(8) as pool:
        list(pool.map(subscribe, range(min(_RECEIVERS, total))))


def _sample(progress: Progress) -> Tally:
    with progress.lock:
        return {
            "at": time.perf_counter(), "published": progress.published, "letters": progress.letters,
            "lags": len(progress.lags),
        }  # fmt: skip
