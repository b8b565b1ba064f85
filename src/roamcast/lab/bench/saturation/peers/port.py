"""What a peer is, and the loop that measures one that answers batches of events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from roamcast.lab.bench.saturation.world import EventBatch, Ints, World

__all__ = ["Matcher", "Peer", "PeerLoad", "Tally", "measure_matchers"]

Matcher: TypeAlias = Callable[[EventBatch], tuple[Ints, Ints]]
"""The matches of a batch: rows of events, and numbers of subscriptions."""


@dataclass(frozen=True, slots=True)
class PeerLoad:
    """What a peer has to match, again and again. `folder` is for its files."""

    world: World
    batches: Sequence[EventBatch]
    warm_up_s: float
    seconds: float
    folder: Path


class Peer(NamedTuple):
    """`without`: what it does not do that roamcast does. `measure` raises UnavailableError if it cannot run here."""

    name: str
    without: str
    measure: Callable[[PeerLoad], dict[str, Any]]


@dataclass(slots=True)
class Tally:
    """Events and matches so far, and wrong ones among these."""

    events: int = 0
    matches: int = 0
    wrong: int = 0

    def since(self, first: Tally, seconds: float) -> dict[str, Any]:
        """The figures of a peer."""
        return {
            "events_per_s": round((self.events - first.events) / seconds),
            "matches_per_s": round((self.matches - first.matches) / seconds),
            "events": self.events, "matches": self.matches, "wrong": self.wrong,
        }  # fmt: skip


def measure_matchers(load: PeerLoad, matchers: Sequence[Matcher]) -> dict[str, Any]:
    """Each matcher has a thread and gets one batch after another. Every match is checked.

    The time ends with the last batch that was begun in it: where a batch takes long, each thread has one at least. A
    batch that was begun in the warm-up counts too, in favour of the peer.
    """
    tally, lock, over, numbers = Tally(), threading.Lock(), threading.Event(), count()

    def work(matcher: Matcher) -> None:
        while not over.is_set():
            with lock:
                batch = load.batches[next(numbers) % len(load.batches)]
            rows, subscriptions = matcher(batch)
            wrong = load.world.wrong_matches(batch.cells, rows, subscriptions)
            with lock:
                tally.events += len(batch.cells)
                tally.matches += rows.size
                tally.wrong += wrong

    with ThreadPoolExecutor(len(matchers)) as pool:
        running = [pool.submit(work, matcher) for matcher in matchers]
        try:
            wait(running, load.warm_up_s, FIRST_COMPLETED)  # which is one that has failed
            with lock:
                first, begun = Tally(tally.events, tally.matches), time.perf_counter()
            wait(running, load.seconds, FIRST_COMPLETED)
        finally:
            over.set()
        for each in running:
            each.result()
    return tally.since(first, time.perf_counter() - begun)
