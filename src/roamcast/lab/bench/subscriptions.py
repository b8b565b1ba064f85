"""`roamcast bench subscriptions`: very many subscriptions over HTTP, until they are in force.

A node and a pipeline run as real processes. The same rows are inserted into a plain SQLite table with the same chunks
and one sync each, in the same run: what storing them costs at least.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import orjson

from roamcast.client import Client
from roamcast.lab.bench.entities import register_entities
from roamcast.lab.bench.federation.domains import Domain
from roamcast.lab.bench.processes import pipeline, until

__all__ = ["bench_subscriptions"]

Say = Callable[[str], None]

_ROWS: Final = 5_000  # in a request
_LOADERS: Final = 2
_CONNECTIONS: Final = 32
_SAY_EVERY: Final = 20  # requests of a connection
_MOVE_EVERY: Final = 0.02  # seconds
_TERMS: Final = 20_000


def bench_subscriptions(count: int, singles: int, entities: int, say: Say) -> dict[str, Any]:
    """Load `count` subscriptions in bulk while others move, then add `singles` one by one over 32 connections,
    and as many again as LACL texts.

    There are `entities` sources and as many subscribers, which are registered before. `say` gets what is being done.
    """
    figures: dict[str, Any] = {"subscriptions": count}
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as scratch:
        bodies = list(_bodies(count))
        figures["sqlite_s"] = round(_insert(Path(scratch) / "plain.sqlite", bodies), 2)
        say(f"plain SQLite table: {figures['sqlite_s']} s")
        domain = Domain("north", Path(scratch))
        with domain.node() as node:
            figures["node_mb_empty"] = node.rss_mb
        begun = time.perf_counter()
        token = register_entities(domain, say, sources=entities, subscribers=entities)("r0")
        figures["entities"] = 2 * entities
        figures["register_s"] = round(time.perf_counter() - begun, 1)
        begun = time.perf_counter()
        with domain.node() as node:
            figures["node_start_with_entities_s"] = round(time.perf_counter() - begun, 2)
            figures["node_mb_with_entities"] = node.rss_mb
            with pipeline(domain.data) as running:
                domain.wait_for_pipeline()
                say(f"loading {count:,} subscriptions")
                figures |= _load(domain, token, bodies, say)
                figures["bulk_per_s"] = round(count / figures["in_force_s"])
                figures["sqlite_over_bulk"] = round(figures["sqlite_s"] / figures["acknowledged_s"], 3)
                say(f"in force after {figures['in_force_s']} s; moves: 99 % in {figures['move_p99_ms']} ms")
                figures |= _add_singles(domain.url, token, singles, "single", _single)
                figures |= _add_singles(domain.url, token, singles, "single_lacl", _single_lacl)
                say(f"single ones: {figures['single_per_s']:,} a second, as LACL {figures['single_lacl_per_s']:,}")
                figures["node_mb"], figures["pipeline_driver_mb"] = node.rss_mb, running.rss_mb
            node.stop()
            begun = time.perf_counter()
            node.start()
            figures["node_restart_s"] = round(time.perf_counter() - begun, 2)
            figures["node_mb_after_restart"] = node.rss_mb
    return figures


def _bodies(count: int) -> Iterator[list[bytes]]:
    """Rows as JSON, in chunks: boxes of up to one degree, and two terms."""
    rng = np.random.default_rng(1)
    for first in range(0, count, _ROWS):
        size = min(_ROWS, count - first)
        x, y = rng.uniform(-179, 178, size), rng.uniform(-85, 84, size)
        width, height = rng.random((2, size))
        terms = rng.zipf(1.3, (2, size)) % _TERMS
        yield [
            orjson.dumps(
                {
                    "id": f"q{first + row}",
                    "box": [
                        float(x[row]), float(y[row]), float(x[row] + width[row]), float(y[row] + height[row])
                    ],
                    "terms": [f"t{terms[0, row]}", f"u{terms[1, row]}"],
                }
            )
            for row in range(size)
        ]  # fmt: skip


def _insert(path: Path, bodies: Sequence[Sequence[bytes]]) -> float:
    begun = time.perf_counter()
    with closing(sqlite3.connect(path)) as plain:
        plain.execute("PRAGMA journal_mode = WAL")
        plain.execute("PRAGMA synchronous = FULL")
        plain.execute("CREATE TABLE subscriptions (id TEXT PRIMARY KEY, subscriber TEXT, body TEXT)")
        for rows in bodies:
            values = [(orjson.loads(row)["id"], "ann", row.decode()) for row in rows]
            with plain:
                plain.executemany("INSERT INTO subscriptions VALUES (?, ?, ?)", values)
    return time.perf_counter() - begun


def _load(domain: Domain, token: str, bodies: Sequence[Sequence[bytes]], say: Say) -> dict[str, Any]:
    """Send all rows over some connections, and move a subscriber meanwhile."""
    over, latencies = threading.Event(), list[float]()

    def move() -> None:
        with Client(domain.url) as mover:
            mover.register_subscriber("mover", x=0, y=0)
            while not over.wait(_MOVE_EVERY):
                begun = time.perf_counter()
                mover.move(np.random.default_rng(len(latencies)).random(), 0.5)
                latencies.append(time.perf_counter() - begun)

    def load(part: Sequence[Sequence[bytes]]) -> None:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}
        with httpx.Client(timeout=600.0, headers=headers) as http:
            for number, rows in enumerate(part, start=1):
                response = http.post(f"{domain.url}/v1/subscriptions", content=b"\n".join(rows))
                response.raise_for_status()
                if response.json()["added"] != len(rows):
                    raise RuntimeError(response.text[:500])
                if part is parts[0] and number % _SAY_EVERY == 0:
                    say(f"about {number * _LOADERS * _ROWS:,} acknowledged")

    parts = [bodies[first::_LOADERS] for first in range(_LOADERS)]
    mover = threading.Thread(target=move)
    mover.start()
    try:
        begun = time.perf_counter()
        with ThreadPoolExecutor(_LOADERS) as pool:
            list(pool.map(load, parts))
        acknowledged = time.perf_counter() - begun
    finally:
        over.set()
        mover.join()
    domain.wait_for_pipeline()
    _expect_letter(domain, token, orjson.loads(bodies[-1][-1]))
    in_force = time.perf_counter() - begun
    milliseconds = np.array(latencies or [0.0]) * 1000
    return {
        "acknowledged_s": round(acknowledged, 1),
        "in_force_s": round(in_force, 1),
        "moves": len(latencies),
        "move_p50_ms": round(float(np.percentile(milliseconds, 50)), 1),
        "move_p99_ms": round(float(np.percentile(milliseconds, 99)), 1),
    }


def _expect_letter(domain: Domain, token: str, row: dict[str, Any]) -> None:
    """An event that matches the last subscription becomes a letter."""
    x, y, *_ = row["box"]
    with Client(domain.url) as source, Client(domain.url, token) as subscriber:
        source.register_source("probe", x=x, y=y)
        source.publish({"terms": row["terms"]})
        until(
            lambda: any(letter.subscription == row["id"] for letter in subscriber.pull(limit=1_000, wait=1.0)),
            120.0,
            "the letter of the last subscription",
        )


def _single(number: int) -> dict[str, Any]:
    x, y = number / 1_000 % 170, number / 700 % 80
    return {"box": [x, y, x + 1, y + 1], "terms": [f"t{number % _TERMS}"]}


def _single_lacl(number: int) -> dict[str, Any]:
    """The same events; no two texts are equal."""
    box, (term,) = _single(number).values()
    return {"lacl": f"Select all() Where &location in box({', '.join(map(str, box))}) and &terms has ({term})"}


def _add_singles(
    url: str, token: str, count: int, name: str, subscription: Callable[[int], dict[str, Any]]
) -> dict[str, Any]:
    latencies: list[float] = []
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def add(numbers: Sequence[int]) -> None:
        connection = HTTPConnection(url.removeprefix("http://"), timeout=60.0)
        with closing(connection):
            for number in numbers:
                body = orjson.dumps({"id": f"{name}-{number}", **subscription(number)})
                begun = time.perf_counter()
                connection.request("POST", "/v1/subscriptions", body, headers)
                response = connection.getresponse()
                if response.status != HTTPStatus.CREATED:
                    raise RuntimeError(response.read().decode())
                response.read()
                latencies.append(time.perf_counter() - begun)

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        begun = time.perf_counter()
        list(pool.map(add, [range(first, count, _CONNECTIONS) for first in range(_CONNECTIONS)]))
        seconds = time.perf_counter() - begun
    return {
        f"{name}_per_s": round(count / seconds),
        f"{name}_p50_ms": round(float(np.percentile(latencies, 50)) * 1000, 1),
        f"{name}_p99_ms": round(float(np.percentile(latencies, 99)) * 1000, 1),
    }
