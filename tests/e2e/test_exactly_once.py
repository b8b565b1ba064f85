"""Exactly once and in order, end to end, while processes are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from roamcast.client import Client
from roamcast.deliver.outbox import Outbox
from roamcast.lab.bench.processes import Process, free_port, node, pipeline, until

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


class Kills:
    """How often the pipeline was killed so far. After each some events are still to come."""

    def __init__(self) -> None:
        self._counted = threading.Condition()
        self._count = 0

    def add(self, count: int = 1) -> None:
        with self._counted:
            self._count += count
            self._counted.notify_all()

    def wait_for(self, count: int) -> None:
        with self._counted:
            self._counted.wait_for(lambda: self._count >= count)


def publish(client: Client, events: list[Sent], chance: random.Random, kills: Kills, pace: threading.Event) -> None:
    """In bulks; every now and then one bulk a second time, as a sender does that missed the answer."""
    for bulk in bulks(events, 20):
        kills.wait_for((bulk[0].seq - 1) * (PIPELINE_KILLS + 1) // len(events))
        for _ in range(2 if chance.random() < 0.2 else 1):
            client.publish([event.as_json() for event in bulk])
        pace.wait(chance.uniform(0.05, 0.4))


def bulks(events: list[Sent], size: int) -> Iterator[list[Sent]]:
    for start in range(0, len(events), size):
        yield events[start : start + size]


def kill_at_random(
    process: Process, outbox: Outbox, chance: random.Random, kills: Kills, pause: threading.Event
) -> list[int]:
    """SIGKILL at random moments of a pipeline that works; the batches it had finished each time."""
    killed_after = [-1]
    try:
        for _ in range(PIPELINE_KILLS):
            until(lambda: batch_of(outbox) > killed_after[-1], 60, "the pipeline to go on")
            pause.wait(chance.uniform(0.0, 1.5))
            process.kill()
            killed_after.append(batch_of(outbox))
            kills.add()
            process.start()
    finally:
        kills.add(PIPELINE_KILLS)
    return killed_after


def batch_of(outbox: Outbox) -> int:
    sender = outbox.read_status()
    return sender.batch if sender else -1


def test_every_letter_comes_once_and_in_order_though_processes_are_killed(tmp_path: Path) -> None:
    """5,000 events, some posted twice; pipeline and node killed; each expected letter pulled exactly once."""
    chance = random.Random(20261)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    unset, done, kills = threading.Event(), threading.Event(), Kills()
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
            threads.submit(publish, client, events, random.Random(events[0].source), kills, unset)
            for client, events in senders
        ]
        killing = threads.submit(kill_at_random, the_pipeline, Outbox(tmp_path / "outbox"), chance, kills, unset)
        unset.wait(chance.uniform(3.0, 8.0))
        the_node.kill()
        the_node.start()
        for task in work:
            task.result(200)
        killed_after = killing.result(100)

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
            lambda: all(len(readers[name].got) >= len(expected[name]) for name in readers),
            60,
            "the last letters",
        )
        unset.wait(3.0)  # anything surplus would come now
        done.set()
        for task in reading:
            task.result(30)

    assert killed_after == sorted(set(killed_after)), "each kill hit a pipeline that had gone on"
    for name, reader in readers.items():
        assert sorted(reader.got) == sorted(expected[name]), f"the letters of {name}"
        for subscription in {s for s, _, _ in reader.got}:
            for source in range(SOURCES):
                seqs = [n for s, o, n in reader.got if s == subscription and o == f"source-{source}"]
                assert seqs == sorted(seqs), f"order of source-{source} for {name}"
    assert expected["ann"]
    assert not expected["dan"]
