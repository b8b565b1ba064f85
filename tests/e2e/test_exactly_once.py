"""Exactly once and in order, end to end, while processes are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from roamcast.bench.processes import Process, free_port, node, pipeline, until
from roamcast.client import Client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

EVENTS = 5_000
SOURCES = 5
PIPELINE_KILLS = 4
# Long enough to ride out a node's restart.
PATIENCE = (0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 5.0, 5.0, 5.0, 10.0)

# id -> (subscriber, box, terms)
SUBSCRIPTIONS = {
    "all-of-it": ("ann", (-10.0, -10.0, 10.0, 10.0), ()),
    "fire-anywhere": ("ann", None, ("fire",)),
    "north": ("bob", (-10.0, 0.0, 10.0, 10.0), ("smoke",)),
    "both": ("cleo", (0.0, 0.0, 10.0, 10.0), ("fire", "smoke")),
    "nothing": ("dan", (20.0, 20.0, 21.0, 21.0), ("fire",)),
}


@dataclass(frozen=True)
class Sent:
    source: str
    seq: int
    x: float
    y: float
    terms: tuple[str, ...]

    def matches(self, subscription: str) -> bool:
        _, box, terms = SUBSCRIPTIONS[subscription]
        inside = box is None or (box[0] <= self.x <= box[2] and box[1] <= self.y <= box[3])
        return inside and set(terms) <= set(self.terms)

    def as_json(self) -> dict[str, object]:
        return {"seq": self.seq, "x": self.x, "y": self.y, "terms": list(self.terms)}


@dataclass
class Reader:
    """Pulls behind the last place it saw, and acknowledges: what it collects, it was handed once."""

    client: Client
    got: list[tuple[str, str, int]] = field(default_factory=list)

    def read_until(self, done: threading.Event) -> None:
        place = 0
        while not done.is_set():
            for letter in self.client.pull(after=place, wait=1.0, limit=200):
                self.got.append((letter.subscription, letter.event["source"], letter.event["seq"]))
                place = letter.place
            if place:
                self.client.acknowledge(place)


def made_up_events(source: str, chance: random.Random) -> list[Sent]:
    words = ("fire", "smoke", "rain")
    return [
        Sent(
            source,
            seq,
            chance.choice((-10.0, -5.0, 0.0, 5.0, 10.0, 15.0)),
            chance.choice((-5.0, 0.0, 5.0)),
            tuple(word for word in words if chance.random() < 0.5),
        )
        for seq in range(1, EVENTS // SOURCES + 1)
    ]


def publish(client: Client, events: list[Sent], chance: random.Random, pace: threading.Event) -> None:
    """In bulks; every now and then one bulk a second time, as a sender does that missed the answer."""
    for bulk in bulks(events, 20):
        for _ in range(2 if chance.random() < 0.2 else 1):
            client.publish([event.as_json() for event in bulk])
        pace.wait(chance.uniform(0.05, 0.6))


def bulks(events: list[Sent], size: int) -> Iterator[list[Sent]]:
    for start in range(0, len(events), size):
        yield events[start : start + size]


def kill_at_random(process: Process, times: int, chance: random.Random, pause: threading.Event) -> None:
    """SIGKILL between the start of Spark's query and some batches later."""
    for _ in range(times):
        pause.wait(chance.uniform(0.1, 4.0))
        process.kill()
        process.start()


def test_every_letter_comes_once_and_in_order_though_processes_are_killed(tmp_path: Path) -> None:
    """5,000 events, some posted twice; pipeline and node killed; each expected letter pulled exactly once."""
    chance = random.Random(20261)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    unset, done = threading.Event(), threading.Event()
    with node(tmp_path, port) as the_node, pipeline(tmp_path) as the_pipeline, ThreadPoolExecutor(16) as threads:
        readers: dict[str, Reader] = {}
        for name, (subscriber, box, terms) in SUBSCRIPTIONS.items():
            if subscriber not in readers:
                readers[subscriber] = Reader(Client(url, delays=PATIENCE))
                readers[subscriber].client.register_subscriber(subscriber)
            readers[subscriber].client.subscribe(id=name, box=box, terms=terms)
        senders = []
        for number in range(SOURCES):
            client = Client(url, delays=PATIENCE)
            client.register_source(f"source-{number}")
            senders.append((client, made_up_events(f"source-{number}", chance)))
        reading = [threads.submit(reader.read_until, done) for reader in readers.values()]
        work = [
            threads.submit(publish, client, events, random.Random(events[0].source), unset)
            for client, events in senders
        ]
        work.append(threads.submit(kill_at_random, the_pipeline, PIPELINE_KILLS, chance, unset))
        unset.wait(chance.uniform(3.0, 8.0))
        the_node.kill()
        the_node.start()
        for task in work:
            task.result(200)

        expected = {
            subscriber: [
                (name, event.source, event.seq)
                for name, (owner, _, _) in SUBSCRIPTIONS.items()
                if owner == subscriber
                for _, events in senders
                for event in events
                if event.matches(name)
            ]
            for subscriber in readers
        }
        until(
            lambda: all(len(readers[name].got) >= len(expected[name]) for name in readers) or reading[0].done(),
            60,
            "the last letters",
        )
        unset.wait(3.0)  # anything surplus would come now
        done.set()
        for task in reading:
            task.result(30)

    for name, reader in readers.items():
        assert sorted(reader.got) == sorted(expected[name]), f"the letters of {name}"
        for subscription in {s for s, _, _ in reader.got}:
            for source in range(SOURCES):
                seqs = [n for s, o, n in reader.got if s == subscription and o == f"source-{source}"]
                assert seqs == sorted(seqs), f"order of source-{source} for {name}"
    assert expected["ann"]
    assert not expected["dan"]
