"""`roamcast bench federation`: what events between two domains cost, compared with events inside one.

Two domains on this machine, each with a data folder, a node process and a pipeline process. All subscriptions are in
the north. First sources of the north publish, while there is no south; then sources of the south publish events of the
same content, which make the same letters in the same mailboxes.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import numpy as np

from roamcast.client import Client
from roamcast.lab.bench.federation.domains import Domain, add_subscriptions
from roamcast.lab.bench.federation.load import LoadPath, LoadResult
from roamcast.lab.bench.federation.workload import Workload
from roamcast.lab.bench.processes import pipeline
from roamcast.node.peers.links import FORWARDED_EVENTS, WANTS

__all__ = ["bench_federation"]

_SUBSCRIBERS: Final = 20
_SOURCES: Final = 100  # of each domain
_SINGLE: Final = 20  # subscriptions that are timed one by one
_CROSSED: Final = "roamcast_events_received_total"

Say = Callable[[str], None]
Row = dict[str, Any]


def bench_federation(
    subscriptions: int,
    rate: int,
    seconds: float,
    events: int,
    say: Say,
    run_pipeline: Callable[[Path], AbstractContextManager[object]] = pipeline,
) -> dict[str, list[Row]]:
    """Latency at `rate` events per second for `seconds`, then the time of `events` published as fast as possible.

    A row for each path, and one for the link. `missing`, `doubled` and `unexpected` letters must be 0.
    """
    workload = Workload(subscriptions, _SUBSCRIBERS, _SOURCES, ("north", "south"))
    link: Row = {"subscriptions": subscriptions}
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as folder:
        north, south = Domain("north", Path(folder)), Domain("south", Path(folder))
        with north.node() as process:
            link["north_empty_mb"] = process.rss_mb
            readers, north_sources = north.register_subscribers(workload), north.register_sources(workload)
        with south.node() as process:
            link["south_empty_mb"] = process.rss_mb
            south_sources = south.register_sources(workload)
        say(f"storing {subscriptions} subscriptions in the north")
        add_subscriptions(north, workload)
        say("starting node and pipeline of the north")
        with north.node() as north_process, run_pipeline(north.data):
            north.wait_for_pipeline()
            say("events inside the north")
            path = LoadPath(workload, north, north_sources, north, readers)
            inside = asyncio.run(path.run(rate, seconds, events))
            link["north_alone_mb"] = north_process.rss_mb
            with north.operator() as operator:
                invitation = operator.invite("south")
            say("the south joins")
            with run_pipeline(south.data):
                began = time.perf_counter()
                with south.node("--join", north.url, "--invitation", invitation) as south_process:
                    north.wait_until_active(workload.last_subscriptions())
                    link["confirmed_s"] = round(time.perf_counter() - began, 1)
                    link["wants_bytes"] = _bytes(north.metrics(), WANTS)
                    link |= {"north_joined_mb": north_process.rss_mb, "south_joined_mb": south_process.rss_mb}
                    link["active"] = sum(each.state == "active" for each in north.subscriptions())
                    link["subscribe_p50_ms"] = _time_single(north, next(iter(readers.values())))
                    south.wait_for_pipeline()
                    say("events from the south to the north")
                    path = LoadPath(workload, south, south_sources, north, readers)
                    before = north.metrics()
                    between = asyncio.run(path.run(rate, seconds, events))
                    after = north.metrics()
    rows = [_row("inside", inside), _row("between", between)]
    crossed = int(after[_CROSSED] - before[_CROSSED])
    link |= {
        "ratio": round(between.events_per_s / inside.events_per_s, 3),
        **{f"added_{name}": round(rows[1][name] - rows[0][name], 1) for name in ("p50_ms", "p99_ms")},
        "crossed": crossed,
        "wanted_share": round(between.wanted / max(crossed, 1), 4),
        "bytes_per_event": round(
            (_bytes(after, FORWARDED_EVENTS) - _bytes(before, FORWARDED_EVENTS)) / max(crossed, 1)
        ),
        "wants_bytes_per_subscription": round(link.pop("wants_bytes") / subscriptions),
    }
    return {"rows": [*rows, link]}


def _row(path: str, result: LoadResult) -> Row:
    waits = np.array(result.latencies) * 1e3
    p50, p99 = (round(float(np.percentile(waits, q)), 1) if len(waits) else float("nan") for q in (50, 99))
    return {
        "path": path,
        "events_per_s": round(result.events_per_s),
        "p50_ms": p50,
        "p99_ms": p99,
        **{name: getattr(result, name) for name in ("events", "wanted", "missing", "doubled", "unexpected")},
    }


def _bytes(metrics: Mapping[str, float], path: str) -> float:
    """The bodies of requests to this path and of their responses, since the start of the node."""
    label = f'{{path="{path}"}}'
    return sum(metrics.get(f"roamcast_peer_bytes_{way}_total{label}", 0.0) for way in ("sent", "received"))


def _time_single(domain: Domain, token: str) -> float:
    """The median time from a new subscription, beside all the others, until it is active, in milliseconds."""
    times = []
    with Client(domain.url, token) as reader:
        for number in range(_SINGLE):
            began = time.perf_counter()
            id = reader.subscribe(box=(8, 53, 9, 54), terms=[f"single-{number}"])
            while reader.subscription(id).state != "active":
                time.sleep(0.002)
            times.append((time.perf_counter() - began) * 1e3)
            reader.unsubscribe(id)
    return round(float(np.median(times)), 1)
