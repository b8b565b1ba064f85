"""Which events each subscription must and may receive, by plain geometry and the times of requests and responses.

All times are of one clock, that of the program that publishes, subscribes, moves and reads. What was requested and not
yet acknowledged may or may not be in force: an event *must* arrive if it was published after `active` was read and
acknowledged before the next change was requested, and *may* arrive if it was published after the first of these
requests and before the last of these responses.

Events of other hosts are on their way for a while, and between hosts there is no order that is finer than a batch of
the pipeline. So when a subscription is added, events may arrive or not that are on their way then. An event is not if a
subscriber of the same home has read it, or a later one of its source. Events that are on their way when a subscription
is removed or its region moves must arrive, and those that were published shortly after may.

A new subscription first receives the last event of its source: the last one that its home knows of, if any, and then
later ones that were on their way as the last ones. None is older than what subscribers of the same home had read.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

CLOCK = 5.0  # seconds that events of other hosts may be published too early or too late: clocks are only estimated

Point = tuple[float, float]
Box = tuple[float, float, float, float]
Event = tuple[str, int]


def home_of(source: str) -> str:
    return source.rpartition("-")[0]


def terms_of(number: int) -> list[str]:
    """Every second event has one term, every fourth another."""
    return ["fire"] if number % 2 else ["smoke"] if number % 4 else []


@dataclass
class Batch:
    """Events of one source with consecutive numbers, published by one request."""

    source: str
    numbers: range
    sent: float
    acknowledged: float
    points: list[Point] = field(default_factory=list)
    """Where the source may have been."""


@dataclass
class Move:
    """A position of a source, from the request on. It is in force when the request is acknowledged."""

    point: Point
    sent: float
    acknowledged: float = inf


@dataclass
class Phase:
    """What a subscription wants between two changes: the events of a source, or those in a box that have a term."""

    requested: float
    source: str = ""
    box: Box = (0, 0, 0, 0)
    term: str = ""
    active: float = inf
    ended: float = inf
    """When the next change was requested."""
    gone: float = inf
    """When the next change was acknowledged and, unless it was the removal, active."""

    def matches(self, batch: Batch, number: int) -> tuple[bool, bool]:
        """Whether an event certainly matches, and whether it possibly does."""
        if self.source:
            return batch.source == self.source, batch.source == self.source
        if self.term not in terms_of(number):
            return False, False
        west, south, east, north = self.box
        inside = [west <= x <= east and south <= y <= north for x, y in batch.points]
        return all(inside), any(inside)


@dataclass
class Entry:
    """A subscription, and what was read of it."""

    id: str
    home: str
    phases: list[Phase]
    read_before: dict[str, int]
    """By source, the last number that subscribers of the home had read when it was requested."""
    got: list[Event] = field(default_factory=list)

    def change(self, now: float, **wanted: Any) -> None:
        """A change has been requested."""
        self.phases[-1].ended = now
        self.phases.append(Phase(now, **wanted))

    def activate(self, now: float) -> None:
        """The last change was seen to be in force."""
        self.phases[-1].active = now
        for phase in self.phases[:-1]:
            phase.gone = min(phase.gone, now)

    def remove(self, now: float) -> None:
        """The removal was acknowledged."""
        for phase in self.phases:
            phase.gone = min(phase.gone, now)


class Ledger:
    """Everything that was published, wanted and read. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: list[Batch] = []
        self._moves: dict[str, list[Move]] = defaultdict(list)
        self._last_read: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(lambda: -1))  # by home and source
        self.entries: dict[str, Entry] = {}

    def move_source(self, source: str, point: Point, now: float) -> Move:
        with self._lock:
            self._moves[source].append(Move(point, now))
            return self._moves[source][-1]

    def position(self, source: str) -> Point:
        """Where a source is, if no request is open."""
        return self._moves[source][-1].point

    def publish(self, batch: Batch) -> None:
        with self._lock:
            moves = self._moves[batch.source]
            ends = [move.acknowledged for move in moves[1:]] + [inf]
            batch.points = [
                move.point
                for move, end in zip(moves, ends, strict=True)
                if move.sent <= batch.acknowledged and end >= batch.sent
            ]
            self._batches.append(batch)

    def subscribe(self, id: str, home: str, phase: Phase) -> Entry:
        with self._lock:
            self.entries[id] = Entry(id, home, [phase], dict(self._last_read[home]))
            return self.entries[id]

    def request_removal(self, entry: Entry, now: float) -> None:
        with self._lock:
            entry.phases[-1].ended = now

    def read(self, subscription: str, event: Event) -> None:
        entry, (source, number) = self.entries[subscription], event
        with self._lock:
            entry.got.append(event)
            last = self._last_read[entry.home]
            last[source] = max(number, last[source])

    @property
    def published(self) -> int:
        with self._lock:
            return sum(len(batch.numbers) for batch in self._batches)

    def must(self, entry: Entry) -> set[Event]:
        return {event for event, certain, _ in self._judged(entry) if certain}

    def verdict(self, entry: Entry) -> dict[str, Any]:
        """What is wrong with what was read of a subscription, as lists that are empty if nothing is."""
        judged = list(self._judged(entry))
        must = {event for event, certain, _ in judged if certain}
        may = {event for event, _, possible in judged if possible}
        last: dict[str, int] = defaultdict(lambda: -1)
        disordered = []
        for source, number in entry.got:
            if number <= last[source]:
                disordered.append((source, number))
            last[source] = number
        initial = list(itertools.takewhile(lambda event: event not in may and _is_initial(entry, event), entry.got))
        extra = [event for event in entry.got[len(initial) :] if event not in may]
        return {
            "must": len(must),
            "may": len(may),
            "got": len(entry.got),
            "initial": initial,
            "missing": sorted(must - set(entry.got)),
            "extra": extra,
            "disordered": disordered,
        }

    def _judged(self, entry: Entry) -> Iterator[tuple[Event, bool, bool]]:
        """Events that must or may arrive. One that falls into several phases comes several times."""
        with self._lock:
            batches = list(self._batches)
        for phase in entry.phases:
            for batch in batches:
                is_remote = home_of(batch.source) != entry.home
                slack = CLOCK if is_remote else 0.0
                if batch.sent > phase.gone + slack or (phase.source and batch.source != phase.source):
                    continue
                is_early = batch.acknowledged < phase.requested - slack
                if is_early and (not is_remote or phase.source or phase is not entry.phases[0]):
                    continue
                is_certain = phase.active <= batch.sent and batch.acknowledged <= phase.ended
                read_before = entry.read_before.get(batch.source, -1)
                for number in batch.numbers:
                    certain, possible = phase.matches(batch, number)
                    possible &= number > read_before or not is_early
                    yield (batch.source, number), certain and is_certain, possible


def _is_initial(entry: Entry, event: Event) -> bool:
    """Whether it may be a last event of the source that a new subscription was first bound to."""
    source, number = event
    return source == entry.phases[0].source and number >= entry.read_before.get(source, -1)
