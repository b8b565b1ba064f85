"""`roamcast bench pipeline --saturate`: the highest rate from HTTP to acknowledged letters.

A node and a pipeline run as processes with their default settings, beside the load generator. Connections publish as
fast as responses come, but not more than a window ahead of the letters: so the rate is one that can be sustained
without growing lag. A reader pulls and acknowledges all mailboxes, and checks each letter: that its subscription
matches its event, that numbers are dense, and that the events of a source are in order. At the end none is missing.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import httpx
import numpy as np
import orjson
import pyarrow as pa

from roamcast.client import Client
from roamcast.errors import InputError, RoamcastError
from roamcast.lab.bench.federation.domains import Domain
from roamcast.lab.bench.processes import Process, pipeline, until

__all__ = ["BodyFormat", "SaturationLoad", "bench_saturation", "body_format"]

BodyFormat: TypeAlias = Literal["json", "arrow"]
Say: TypeAlias = Callable[[str], None]
Tally: TypeAlias = dict[str, Any]

_RECEIVERS: Final = 1_000
_SOURCES: Final = 100
_PUBLISHERS: Final = 8  # each waits for its response, which takes a group commit
_EVENTS_PER_BODY: Final[dict[BodyFormat, int]] = {"json": 500, "arrow": 5_000}
_BODIES: Final = 40
_KINDS: Final = 50
_SUBSCRIPTIONS_PER_REQUEST: Final = 1_000
_WINDOW_S: Final = 2.0  # of events ahead of the letters
_LEAST_WINDOW: Final = 20_000  # events
_PULL_WAIT_S: Final = 1.0
_END_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class SaturationLoad:
    """`letters` is the mean number of letters that an event makes: a fraction below 1, or a whole number."""

    subscriptions: int
    letters: float
    seconds: float = 30.0
    warm_up_s: float = 15.0
    body: BodyFormat = "json"


@dataclass(frozen=True, slots=True)
class _World:
    """The world is a grid of cells. As many subscriptions as an event makes letters have a box inside each cell."""

    columns: int
    rows: int
    copies: int

    @classmethod
    def of(cls, load: SaturationLoad) -> _World:
        copies = max(1, round(load.letters))
        cells = max(1, load.subscriptions // copies)
        columns = max(1, int((2 * cells) ** 0.5))
        return cls(columns, max(1, cells // columns), copies)

    @property
    def cells(self) -> int:
        return self.columns * self.rows

    def subscription(self, number: int) -> dict[str, Any]:
        cell = number // self.copies
        x, y = self._corner(cell)
        box = [x, y, x + 180.0 / self.columns, y + 80.0 / self.rows]
        return {"id": f"s{number}", "box": box, "terms": [f"kind{cell % _KINDS}"]}

    def events(self, count: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], pa.Table]:
        """Events in random cells; the cell whose subscriptions each one matches, or -1."""
        cells = rng.integers(0, self.cells, count)
        hits = rng.random(count) < share
        shift = np.where(hits, 0.25, 0.75)  # boxes fill the lower left quarter of their cells
        corners = np.array([self._corner(cell) for cell in cells.tolist()])
        table = pa.table(
            {
                "x": corners[:, 0] + shift * 360.0 / self.columns,
                "y": corners[:, 1] + shift * 160.0 / self.rows,
                "terms": [[f"kind{cell % _KINDS}", "reading", f"zone{cell % 7}"] for cell in cells.tolist()],
                "readings": pa.array([[("level", float(cell % 100))] for cell in cells.tolist()], _READINGS),
            }
        )
        return np.where(hits, cells, -1), table

    def _corner(self, cell: int) -> tuple[float, float]:
        row, column = divmod(cell, self.columns)
        return -180.0 + 360.0 * column / self.columns, -80.0 + 160.0 * row / self.rows


_READINGS: Final = pa.map_(pa.string(), pa.float64())


@dataclass(frozen=True, slots=True)
class _Body:
    """A request body, and the cell that each of its events hits, or -1."""

    content: bytes
    cells: list[int]
    letters: int


@dataclass(slots=True)
class _Progress:
    """What was published and read so far. The lock guards all of it."""

    copies: int
    lock: threading.Condition = field(default_factory=threading.Condition)
    bodies: dict[str, dict[int, tuple[_Body, float]]] = field(default_factory=dict)
    published: int = 0
    expected: int = 0
    letters: int = 0
    window: int = _LEAST_WINDOW
    over: bool = False
    error: str | None = None
    lags: list[float] = field(default_factory=list)


def body_format(name: str) -> BodyFormat:
    """Raises InputError for an unknown format."""
    for format in _EVENTS_PER_BODY:
        if format == name:
            return format
    raise InputError(f"unknown body {name!r}", where="--body", hint=f"use {' or '.join(_EVENTS_PER_BODY)}")


def bench_saturation(loads: Sequence[SaturationLoad], say: Say) -> dict[str, Any]:
    """Measure each load."""
    return {"rows": [_run(load, say) for load in loads]}


def _run(load: SaturationLoad, say: Say) -> dict[str, Any]:
    world = _World.of(load)
    say(f"{load.subscriptions:,} subscriptions, {load.letters:g} letters an event, {load.body}: starting")
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as scratch:
        domain = Domain("local", Path(scratch))
        with domain.node() as node, pipeline(domain.data) as running:
            readers, sources = _register(domain)
            _subscribe(domain, world, readers)
            domain.wait_for_pipeline()
            bodies = [_body(world, load, np.random.default_rng(seed)) for seed in range(_BODIES)]
            say(f"{load.warm_up_s:.0f} s of warm-up, then {load.seconds:.0f} s measured")
            progress = _Progress(world.copies, bodies={source: {} for source in sources})
            with _threads(domain, progress, readers, sources, bodies, load.body):
                until(lambda: progress.error is not None or progress.letters > 0, _END_S, "the first letters")
                time.sleep(load.warm_up_s)
                first = _sample(progress)
                time.sleep(load.seconds)
                last = _sample(progress)
                memory = {"node_mb": node.rss_mb, **_memory(running)}
                with progress.lock:
                    progress.over = True
                until(lambda: progress.error is not None or _is_complete(progress), _END_S, "the last letters")
            if progress.error is not None:
                raise RoamcastError(progress.error, hint="this is a bug: please report it")
            metrics = domain.metrics()
    seconds = last["at"] - first["at"]
    lags = np.array(progress.lags[first["lags"] : last["lags"]] or progress.lags) * 1000
    jobs, here = (metrics.get(f'roamcast_pipeline_batches_total{{by="{by}"}}', 0.0) for by in ("job", "driver"))
    return {
        "subscriptions": load.subscriptions, "letters_per_event": load.letters, "body": load.body,
        "events_per_s": round((last["published"] - first["published"]) / seconds),
        "letters_per_s": round((last["letters"] - first["letters"]) / seconds),
        "lag_p50_ms": round(float(np.percentile(lags, 50))), "lag_p99_ms": round(float(np.percentile(lags, 99))),
        "events": progress.published, "letters": progress.letters, "missing": progress.expected - progress.letters,
        "matched_by_jobs": round(jobs / max(1.0, jobs + here), 2), **memory,
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


def _subscribe(domain: Domain, world: _World, readers: Sequence[str]) -> None:
    """Subscription n belongs to reader n mod the number of readers."""
    total = world.cells * world.copies

    def subscribe(reader: int) -> None:
        numbers = range(reader, total, _RECEIVERS)
        for first in range(0, len(numbers), _SUBSCRIPTIONS_PER_REQUEST):
            rows = [world.subscription(number) for number in numbers[first : first + _SUBSCRIPTIONS_PER_REQUEST]]
            headers = {"authorization": f"Bearer {readers[reader]}"}
            response = http.post(f"{domain.url}/v1/subscriptions", content=orjson.dumps(rows), headers=headers)
            response.raise_for_status()

    with httpx.Client(timeout=600.0) as http, ThreadPoolExecutor(8) as pool:
        list(pool.map(subscribe, range(min(_RECEIVERS, total))))


def _body(world: _World, load: SaturationLoad, rng: np.random.Generator) -> _Body:
    share = min(1.0, load.letters)
    cells, events = world.events(_EVENTS_PER_BODY[load.body], share, rng)
    letters = int((cells >= 0).sum()) * world.copies
    if load.body == "arrow":
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, events.schema) as writer:
            writer.write_table(events)
        return _Body(sink.getvalue().to_pybytes(), cells.tolist(), letters)
    rows = [{**row, "readings": dict(row["readings"])} for row in events.to_pylist()]
    return _Body(orjson.dumps(rows), cells.tolist(), letters)


@contextmanager
def _threads(
    domain: Domain,
    progress: _Progress,
    readers: Sequence[str],
    sources: dict[str, str],
    bodies: Sequence[_Body],
    format: BodyFormat,
) -> Iterator[None]:
    """Publish and read until the end of the block."""

    def guarded(work: Callable[..., None], *arguments: Any) -> None:
        try:
            with httpx.Client(base_url=domain.url, timeout=120.0) as http:
                work(http, progress, *arguments)
        except Exception as error:
            with progress.lock:
                progress.error = progress.error or f"{work.__name__}: {error!r}"
                progress.lock.notify_all()

    names = list(sources)
    threads = [threading.Thread(target=guarded, args=(_read, readers))]
    for number in range(_PUBLISHERS):
        mine = {name: sources[name] for name in names[number::_PUBLISHERS]}
        threads.append(threading.Thread(target=guarded, args=(_publish, mine, bodies[number::_PUBLISHERS], format)))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        with progress.lock:
            progress.over = True
            progress.error = progress.error or (None if _is_complete(progress) else "interrupted")
            progress.lock.notify_all()
        for thread in threads:
            thread.join()


def _publish(
    http: httpx.Client, progress: _Progress, sources: dict[str, str], bodies: Sequence[_Body], format: BodyFormat
) -> None:
    media_type = {"json": "application/json", "arrow": "application/vnd.apache.arrow.stream"}[format]
    per_event = bodies[0].letters / len(bodies[0].cells)
    while True:
        for turn, (source, token) in enumerate(sources.items()):
            body = bodies[turn % len(bodies)]
            with progress.lock:
                while not progress.over and (progress.expected - progress.letters) / per_event > progress.window:
                    progress.lock.wait(1.0)
                if progress.over or progress.error:
                    return
                begun = time.perf_counter()
                progress.expected += body.letters
            headers = {"authorization": f"Bearer {token}", "content-type": media_type}
            response = http.post("/v1/events", content=body.content, headers=headers)
            response.raise_for_status()
            with progress.lock:
                progress.bodies[source][response.json()["first_seq"]] = body, begun
                progress.published += len(body.cells)


def _read(http: httpx.Client, progress: _Progress, tokens: Sequence[str]) -> None:
    """Pull all mailboxes, check and acknowledge, until everything was read or something failed."""
    pulls = [{"token": token, "through": 0, "limit": 1_000} for token in tokens]
    checker, rate, before = _Checker(progress), 0.0, time.perf_counter()
    while not (progress.error or (progress.over and _is_complete(progress))):
        response = http.post(f"/v1/mailboxes/pull?wait={_PULL_WAIT_S:g}", content=orjson.dumps(pulls))
        response.raise_for_status()
        count = 0
        for reader, (pull, mailbox) in enumerate(zip(pulls, orjson.loads(response.content)["mailboxes"], strict=True)):
            if letters := mailbox["letters"]:
                count += len(letters)
                checker.check(reader, letters)
                pull["through"] = letters[-1]["offset"]
        now = time.perf_counter()
        rate = 0.8 * rate + 0.2 * count / (now - before)
        before = now
        with progress.lock:
            progress.letters += count
            share = progress.expected / max(1, progress.published)
            progress.window = max(_LEAST_WINDOW, round(_WINDOW_S * rate / max(share, 1e-9)))
            progress.lock.notify_all()


class _Checker:
    """Checks letters. Belongs to one thread."""

    def __init__(self, progress: _Progress) -> None:
        self._progress = progress
        self._numbers: dict[int, int] = {}
        self._last: dict[tuple[str, str], int] = {}

    def check(self, reader: int, letters: Sequence[dict[str, Any]]) -> None:
        """Raises ValueError."""
        copies, bodies, now = self._progress.copies, self._progress.bodies, time.perf_counter()
        for letter in letters:
            number, subscription = letter["number"], letter["subscription"]
            if number != self._numbers.get(reader, 0) + 1:
                raise ValueError(f"letter {number} of reader {reader} follows {self._numbers.get(reader, 0)}")
            self._numbers[reader] = number
            source, seq = letter["event"]["source"], letter["event"]["seq"]
            if seq <= self._last.get((subscription, source), 0):
                raise ValueError(f"event {seq} of {source} is repeated or out of order for {subscription}")
            self._last[subscription, source] = seq
            body, begun, row = self._body_of(bodies[source], seq)
            wanted = int(subscription[1:])
            if wanted % _RECEIVERS != reader or body.cells[row] != wanted // copies:
                raise ValueError(f"{subscription} of reader {reader} does not match event {seq} of {source}")
            if row == 0 or number % 100 == 0:
                self._progress.lags.append(now - begun)

    def _body_of(self, bodies: dict[int, tuple[_Body, float]], seq: int) -> tuple[_Body, float, int]:
        """The body with this event, when it was sent, and the row of the event. All bodies have the same size."""
        end = time.perf_counter() + 10.0
        while time.perf_counter() < end:  # its response may still be on its way to the other thread
            for first in (seq - (seq - 1) % self._size(bodies), seq):
                if first in bodies:
                    body, begun = bodies[first]
                    return body, begun, seq - first
            time.sleep(0.001)
        raise ValueError(f"nobody published event {seq}")

    @staticmethod
    def _size(bodies: dict[int, tuple[_Body, float]]) -> int:
        return len(next(iter(bodies.values()))[0].cells) if bodies else 1


def _is_complete(progress: _Progress) -> bool:
    return progress.letters == progress.expected


def _sample(progress: _Progress) -> Tally:
    with progress.lock:
        return {
            "at": time.perf_counter(), "published": progress.published, "letters": progress.letters,
            "lags": len(progress.lags),
        }  # fmt: skip


def _memory(running: Process) -> dict[str, float]:
    """Resident memory of the pipeline's processes: its driver, Java, and Spark's Python processes together."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    sizes: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
            pid = int(folder.name)
            parents[pid], names[pid] = int(rest.split()[1]), name
            pages = int((folder / "statm").read_text().split()[1])
            sizes[pid] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        except (OSError, ValueError):
            continue
    family = {running.pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    memory = {"driver_mb": sizes.get(running.pid, 0.0), "java_mb": 0.0, "workers_mb": 0.0}
    for pid in family - {running.pid}:
        memory["java_mb" if names[pid] == "java" else "workers_mb"] += sizes.get(pid, 0.0)
    return {name: round(size, 1) for name, size in memory.items()}
