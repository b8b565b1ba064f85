"""Publishes events in one domain and reads their letters in another, or in the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import httpx

from roamcast.client import AsyncClient, Letter
from roamcast.lab.bench.federation.domains import Domain
from roamcast.lab.bench.federation.workload import Workload
from roamcast.model import global_name

__all__ = ["LoadPath", "LoadResult"]

_WARM_UP_S: Final = 10.0
_POSTS_PER_S: Final = 50
_BULK: Final = 500  # events in a request when as many as possible are published
_REQUESTS: Final = 4  # such requests at a time
_TIMEOUT_S: Final = 120.0
_ACKNOWLEDGE: Final = 100  # letters
_POSTED: Final = "roamcast_letters_posted_total"


@dataclass(slots=True)
class _Letters:
    """Letters, by event and subscription: those that must come, and when each came."""

    expected: set[tuple[str, str]] = field(default_factory=set)
    seen: dict[tuple[str, str], float] = field(default_factory=dict)
    doubled: int = 0

    def note(self, letter: Letter) -> None:
        key = letter.event["id"], letter.subscription
        if key in self.seen:
            self.doubled += 1
        self.seen.setdefault(key, time.perf_counter())


class LoadResult(NamedTuple):
    """`wanted` of the `events` had to become letters. `latencies` are those of letters, in seconds."""

    events: int
    wanted: int
    missing: int
    doubled: int
    unexpected: int
    events_per_s: float
    latencies: list[float]


class LoadPath:
    """The path from the sources of a domain to the subscribers of another one, or of the same."""

    def __init__(
        self, workload: Workload, publish: Domain, sources: Mapping[str, str], read: Domain, readers: Mapping[str, str]
    ) -> None:
        """`sources` and `readers` have tokens."""
        self._workload = workload
        self._publish, self._sources = publish, sources
        self._read, self._readers = read, readers
        self._bound: dict[str, list[str]] = {}
        for subscription in read.subscriptions():
            for source in subscription.sources:
                self._bound.setdefault(source, []).append(subscription.id)
        self._letters = _Letters()
        self._events = 0

    async def run(self, rate: int, seconds: float, events: int) -> LoadResult:
        """Publish at a steady rate, for the latency; then `events` as fast as possible."""
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=60.0) as http:
            sources = {id: AsyncClient(self._publish.url, token, http=http) for id, token in self._sources.items()}
            readers = [AsyncClient(self._read.url, token, http=http) for token in self._readers.values()]
            due = await self._at_rate(sources, readers, rate, seconds)
            events_per_s = await self._at_once(sources, readers, events)
        letters = self._letters
        return LoadResult(
            self._events,
            len({event for event, _ in letters.expected}),
            len(letters.expected - letters.seen.keys()),
            letters.doubled,
            len(letters.seen.keys() - letters.expected),
            events_per_s,
            [seen - due[event] for (event, _), seen in letters.seen.items() if event in due],
        )

    async def _at_rate(
        self, sources: Mapping[str, AsyncClient], readers: Sequence[AsyncClient], rate: int, seconds: float
    ) -> dict[str, float]:
        """Publish at a steady rate, after a warm-up. Returns when each event was due."""
        last: dict[AsyncClient, Letter] = {}
        reading = [asyncio.create_task(self._stream(reader, last)) for reader in readers]
        await self._publish_at_rate(sources, rate, _WARM_UP_S)
        due = await self._publish_at_rate(sources, rate, seconds)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for reader, letter in last.items():
            await reader.acknowledge(letter)
        return due

    async def _publish_at_rate(self, sources: Mapping[str, AsyncClient], rate: int, seconds: float) -> dict[str, float]:
        """Publish at fixed times, however long requests take, and wait for the letters."""
        size = max(1, rate // _POSTS_PER_S)
        ids = list(sources)
        began = time.perf_counter()
        due_times: dict[str, float] = {}
        posts = []
        for post in range(int(seconds * rate / size)):
            due = began + post * size / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            source = ids[post % len(ids)]
            events = self._next_events(source, size)
            due_times.update((event["id"], due) for event in events)
            posts.append(asyncio.create_task(sources[source].publish(events)))
        await asyncio.gather(*posts)
        end = time.perf_counter() + _TIMEOUT_S
        while self._letters.expected - self._letters.seen.keys() and time.perf_counter() < end:
            await asyncio.sleep(0.1)
        return due_times

    async def _at_once(self, sources: Mapping[str, AsyncClient], readers: Sequence[AsyncClient], events: int) -> float:
        """Events per second from the first request until all letters are in the mailboxes."""
        before, letters_before = self._read.metrics()[_POSTED], len(self._letters.expected)
        ids = list(sources)
        posts = iter(range(-(-events // _BULK)))

        async def publish() -> None:
            for post in posts:
                source = ids[post % len(ids)]
                await sources[source].publish(self._next_events(source, _BULK))

        began = time.perf_counter()
        await asyncio.gather(*(publish() for _ in range(_REQUESTS)))
        letters = len(self._letters.expected) - letters_before
        end = time.perf_counter() + _TIMEOUT_S
        while self._read.metrics()[_POSTED] - before < letters and time.perf_counter() < end:
            await asyncio.sleep(0.05)
        took = time.perf_counter() - began
        await asyncio.gather(*map(self._drain, readers))
        return -(-events // _BULK) * _BULK / took

    def _next_events(self, source: str, count: int) -> list[dict[str, Any]]:
        """The next events, which this source publishes."""
        is_local = self._publish is self._read
        name = source if is_local else global_name(source, self._publish.name)
        events = []
        for number in range(self._events, self._events + count):
            id = f"{self._publish.name}/{number}"
            events.append({"id": id, **self._workload.event(number)})
            self._letters.expected.update((id, to) for to in self._workload.letters(number, name, self._bound))
        self._events += count
        return events

    async def _stream(self, reader: AsyncClient, last: dict[AsyncClient, Letter]) -> None:
        """Read until cancelled. `last` has the last letter of each reader."""
        async for letter in reader.letters(ack=False):
            self._letters.note(letter)
            last[reader] = letter
            if letter.offset % _ACKNOWLEDGE == 0:
                await reader.acknowledge(letter)

    async def _drain(self, reader: AsyncClient) -> None:
        """Read what is left in a mailbox."""
        while letters := await reader.pull(limit=1_000):
            for letter in letters:
                self._letters.note(letter)
            await reader.acknowledge(letters[-1])
