"""Exactly once and in order to subscribers that keep migrating, while nodes and pipeline are killed."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from backbone import node_processes

from roamcast.client import Client
from roamcast.deliver.outbox import Outbox
from roamcast.errors import UnavailableError
from roamcast.lab.bench.processes import Process, pipeline, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

DOMAINS = ("north", "south", "west")
SUBSCRIBERS = 10
MIGRATIONS = 200
EVENTS = 1_980  # each to every subscriber
MESSAGES = 400  # between subscribers
NODE_KILLS, PIPELINE_KILLS = 6, 3
# Long enough to ride out a node's restart, and to be on time again soon after it.
PATIENCE = (0.1, 0.2, 0.4, *[0.5] * 100)


@dataclass
class Roamer:
    """Migrates, writes to the others and reads, behind the last place it saw: what it collects, it was handed once."""

    client: Client
    name: str
    chance: random.Random
    urls: list[str]
    events: list[tuple[str, int]] = field(default_factory=list)
    messages: list[tuple[str, int]] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    place: int = 0
    migrations: int = 0

    def live(self, names: list[str], done: threading.Event) -> None:
        others = [name for name in names if name != self.name]
        for step in range(MIGRATIONS // SUBSCRIBERS):
            self.migrate(self.chance.choice(self.urls))
            for _ in range(MESSAGES // MIGRATIONS):
                to = self.chance.choice(others)
                assert self.client.send(to, step).number == self.sent[to] + 1
                self.sent[to] += 1
            self.read(0.0)
            done.wait(self.chance.uniform(0.4, 1.8))  # so that journeys, letters and kills fall together
        while not done.wait(0.25):
            self.read(1.0)

    def migrate(self, url: str) -> None:
        while True:
            try:
                self.client.migrate(url)
            except UnavailableError:
                continue  # an office that is needed for it is away
            self.migrations += 1
            return

    def read(self, wait: float) -> None:
        for letter in self.client.pull(after=self.place, wait=wait, limit=500):
            assert letter.place > self.place
            self.place = letter.place
            if letter.message is None:
                self.events.append((letter.event["source"], letter.event["seq"]))
            else:
                self.messages.append((letter.sender, letter.number))
        if self.place:
            self.client.acknowledge(self.place)


def publish(client: Client, count: int, pace: threading.Event) -> None:
    """In bulks, over about as long as processes are killed."""
    for first in range(1, count + 1, 20):
        bulk = [{"seq": seq, "x": 0.0, "y": 0.0, "terms": ["news"]} for seq in range(first, min(first + 20, count + 1))]
        client.publish(bulk)
        pace.wait(0.8)


def kill_nodes(processes: list[Process], chance: random.Random, pause: threading.Event) -> None:
    """SIGKILL, one after the other, each started again at once."""
    for _ in range(NODE_KILLS):
        pause.wait(chance.uniform(1.0, 5.0))
        process = chance.choice(processes)
        process.kill()
        process.start()


def kill_pipeline(process: Process, outbox: Outbox, chance: random.Random, pause: threading.Event) -> None:
    """SIGKILL when it has done a batch and works on others; every other time whenever it is, as while it starts."""
    until(lambda: (card := outbox.read_status()) is not None and card.batch > 0, 100, "a batch")
    for kill in range(PIPELINE_KILLS):
        pause.wait(chance.uniform(0.0, 12.0 if kill % 2 else 4.0))
        process.kill()
        process.start(wait=kill % 2 == 1)


def test_every_letter_follows_its_receiver_though_processes_are_killed(tmp_path: Path) -> None:
    """10 subscribers, 200 migrations, 20,000 letters; nodes and pipeline killed; each letter once and in order."""
    chance = random.Random(20262)
    unset, done = threading.Event(), threading.Event()
    with ExitStack() as opened:
        started = opened.enter_context(node_processes(tmp_path, *DOMAINS))
        urls = {domain: url for domain, (url, _) in started.items()}
        nodes = [process for _, process in started.values()]
        the_pipeline = opened.enter_context(pipeline(tmp_path))
        threads = opened.enter_context(ThreadPoolExecutor(20))

        roamers = []
        for number in range(SUBSCRIBERS):
            url = urls[DOMAINS[number % 3]]
            client = opened.enter_context(Client(url, delays=PATIENCE))
            client.register_subscriber(f"roamer-{number}")
            client.subscribe(terms=["news"], id=f"news-{number}")
            name = client.me()["name"]
            roamers.append(Roamer(client, name, random.Random(number), list(urls.values())))
        sources = []
        for domain in DOMAINS:
            source = opened.enter_context(Client(urls[domain], delays=PATIENCE))
            source.register_source(f"paper-{domain}")
            sources.append(source)

        names = [roamer.name for roamer in roamers]
        living = [threads.submit(roamer.live, names, done) for roamer in roamers]
        writing = [threads.submit(publish, source, EVENTS // 3, unset) for source in sources]
        killing = [
            threads.submit(kill_nodes, nodes, chance, unset),
            threads.submit(kill_pipeline, the_pipeline, Outbox(tmp_path / "outbox"), random.Random(20263), unset),
        ]
        try:
            for task in [*writing, *killing]:
                task.result(200)

            def settled() -> bool:
                for task in living:
                    if task.done():
                        task.result()
                return all(
                    roamer.migrations == MIGRATIONS // SUBSCRIBERS
                    and len(roamer.events) >= EVENTS
                    and len(roamer.messages) >= sum(other.sent[roamer.name] for other in roamers)
                    for roamer in roamers
                )

            until(settled, 150, "the last letters")
            unset.wait(1.5)  # anything surplus would come now
        finally:
            done.set()
        for task in living:
            task.result(30)

    expected = Counter({(roamer.name, to): count for roamer in roamers for to, count in roamer.sent.items()})
    assert sum(roamer.migrations for roamer in roamers) == MIGRATIONS
    assert len(roamers) * EVENTS + expected.total() >= 20_000
    for roamer in roamers:
        for domain in DOMAINS:
            seqs = [seq for source, seq in roamer.events if source == f"paper-{domain}"]
            assert seqs == list(range(1, EVENTS // 3 + 1)), f"events of {domain} to {roamer.name}"
        for sender in names:
            numbers = [number for name, number in roamer.messages if name == sender]
            assert numbers == list(range(1, expected[sender, roamer.name] + 1)), f"from {sender} to {roamer.name}"
        assert len(roamer.events) == EVENTS
        assert all(earlier != later for earlier, later in pairwise(roamer.messages))
