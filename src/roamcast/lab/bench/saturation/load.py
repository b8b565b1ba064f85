"""The load of `roamcast bench pipeline --saturate`: connections that publish, and one that reads and checks letters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import orjson
import pyarrow as pa

from roamcast.lab.bench.saturation.world import BodyFormat, EventBatch, World

__all__ = ["Body", "Progress", "publishing_and_reading"]

_PUBLISHERS: Final = 8  # each waits for its response, which takes a group commit
_WINDOW_S: Final = 2.0  # of events ahead of the letters
_LEAST_WINDOW: Final = 20_000  # events
_PULL_WAIT_S: Final = 1.0
_LAG_EVERY: Final = 100  # letters, and the first events of bodies


@dataclass(frozen=True, slots=True)
class Body:
    """A request body, and the cell that each of its events hits, or -1."""

    content: bytes
    cells: list[int]
    letters: int

    @classmethod
    def of(cls, batch: EventBatch, world: World, format: BodyFormat) -> Body:
        cells, events = batch
        if format == "arrow":
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, events.schema) as writer:
                writer.write_table(events)
            content = sink.getvalue().to_pybytes()
        else:
            content = orjson.dumps([{**row, "readings": dict(row["readings"])} for row in events.to_pylist()])
        return cls(content, cells.tolist(), world.letters_of(cells))


@dataclass(slots=True)
class Progress:
    """What was published and read so far. The lock guards all of it."""

    copies: int
    events_per_body: int
    lock: threading.Condition = field(default_factory=threading.Condition)
    bodies: dict[str, dict[int, tuple[Body, float]]] = field(default_factory=dict)
    published: int = 0
    expected: int = 0
    letters: int = 0
    window: int = _LEAST_WINDOW
    over: bool = False
    error: str | None = None
    lags: list[float] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return self.letters == self.expected


@contextmanager
def publishing_and_reading(
    url: str,
    progress: Progress,
    readers: Sequence[str],
    sources: dict[str, str],
    bodies: Sequence[Body],
    format: BodyFormat,
) -> Iterator[None]:
    """Publish and read until the end of the block."""

    def guarded(work: Callable[..., None], *arguments: Any) -> None:
        try:
            with httpx.Client(base_url=url, timeout=120.0) as http:
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
            progress.error = progress.error or (None if progress.is_complete else "interrupted")
            progress.lock.notify_all()
        for thread in threads:
            thread.join()


def _publish(
    http: httpx.Client, progress: Progress, sources: dict[str, str], bodies: Sequence[Body], format: BodyFormat
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


def _read(http: httpx.Client, progress: Progress, tokens: Sequence[str]) -> None:
    """Pull all mailboxes, check and acknowledge, until everything was read or something failed."""
    pulls = [{"token": token, "through": 0, "limit": 1_000} for token in tokens]
    checker, rate, before = _Checker(progress, len(tokens)), 0.0, time.perf_counter()
    while not (progress.error or (progress.over and progress.is_complete)):
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

    def __init__(self, progress: Progress, readers: int) -> None:
        self._progress = progress
        self._readers = readers
        self._checked = 0
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
            if wanted % self._readers != reader or body.cells[row] != wanted // copies:
                raise ValueError(f"{subscription} of reader {reader} does not match event {seq} of {source}")
            if row == 0 or self._checked % _LAG_EVERY == 0:
                self._progress.lags.append(now - begun)
            self._checked += 1

    def _body_of(self, bodies: dict[int, tuple[Body, float]], seq: int) -> tuple[Body, float, int]:
        """The body with this event, when it was sent, and the row of the event. All bodies have the same size."""
        end = time.perf_counter() + 10.0
        while time.perf_counter() < end:  # its response may still be on its way to the other thread
            first = seq - (seq - 1) % self._progress.events_per_body
            if first in bodies:
                body, begun = bodies[first]
                return body, begun, seq - first
            time.sleep(0.001)
        raise ValueError(f"nobody published event {seq}")
