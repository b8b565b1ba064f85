"""Subscribers keep migrating while nodes and pipeline are killed: every letter arrives once and in order."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from backbone import node_processes
from drains import is_drained
from kills import PipelineKills, Progress

from roamcast.client import Client
from roamcast.deliver.outbox import Outbox
from roamcast.errors import UnavailableError
from roamcast.lab.bench.processes import Process, pipeline, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2_400)]

DOMAINS = ("north", "south", "west")
SUBSCRIBERS = 10
MIGRATIONS = 200
STEPS = MIGRATIONS // SUBSCRIBERS  # migrations of each subscriber
EVENTS = 1_980  # each matches the subscription of every subscriber
MESSAGES = 400  # between subscribers
NODE_KILLS, PIPELINE_KILLS = 6, 2  # the second kill of the pipeline hits it while it starts
# Client retries: long enough to survive a node's restart, short enough to continue soon after it.
RETRIES = (0.1, 0.2, 0.4, *[0.5] * 100)


@dataclass
class Roamer:
    """A subscriber that migrates, writes to the others and reads. It collects each letter as often as it was given."""

    client: Client
    name: str
    chance: random.Random
    urls: list[str]
    progress: Progress
    events: list[tuple[str, int]] = field(default_factory=list)
    messages: list[tuple[str, int]] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    offset: int = 0
    migrations: int = 0

    def live(self, names: list[str], done: threading.Event) -> None:
        """Spread the migrations over the kills of nodes, so that each kill hits some of them.

        Reads until `done` is set, then reads the rest.
        """
        others = [name for name in names if name != self.name]
        for step in range(STEPS):
            while not (done.is_set() or self.progress.has("node kills", step * NODE_KILLS // STEPS)):
                self.read(0.2)
            self.migrate(self.chance.choice(self.urls))
            for _ in range(MESSAGES // MIGRATIONS):
                self.send(self.chance.choice(others), step)
            self.read(0.0)
        for other in others:
            self.send(other, "last")
        while not done.is_set():
            self.read(1.0)
        while self.read(0.0):
            pass

    def migrate(self, url: str) -> None:
        while True:
            try:
                self.client.migrate(url)
            except UnavailableError:
                continue  # one of the two offices is down
            self.migrations += 1
            self.progress.add("migrations")
            return

    def send(self, to: str, message: object) -> None:
        assert self.client.send(to, message).number == self.sent[to] + 1
        self.sent[to] += 1

    def read(self, wait: float) -> int:
        """Returns the number of letters pulled."""
        letters = self.client.pull(after=self.offset, wait=wait, limit=500)
        for letter in letters:
            assert letter.offset > self.offset
            self.offset = letter.offset
            if letter.message is None:
                self.events.append((letter.event["source"], letter.event["seq"]))
            else:
                self.messages.append((letter.sender, letter.number))
        if self.offset:
            self.client.acknowledge(self.offset)
        return len(letters)


def publish(client: Client, count: int, kills: PipelineKills, progress: Progress) -> None:
    """Publish in bulks, spread over the kills of the pipeline; the last event only when all kills are over."""
    for first in range(1, count, 20):
        kills.wait_for_stage(first / count)
        publish_range(client, first, min(first + 20, count))
    progress.wait_for("node kills", NODE_KILLS)
    publish_range(client, count, count + 1)


def publish_range(client: Client, first: int, end: int) -> None:
    client.publish([{"seq": seq, "x": 0.0, "y": 0.0, "terms": ["news"]} for seq in range(first, end)])


def kill_nodes(processes: list[Process], chance: random.Random, progress: Progress) -> None:
    """Kill one node after another with SIGKILL, in the midst of migrations, and start each again at once."""
    for kill in range(NODE_KILLS):
        progress.wait_for("migrations", MIGRATIONS * (kill + chance.random()) / NODE_KILLS)
        process = chance.choice(processes)
        process.kill()
        process.start()
        progress.add("node kills")


def test_every_letter_follows_its_receiver_while_processes_are_killed(tmp_path: Path) -> None:
    """10 subscribers, 200 migrations, 20,000 letters; nodes and pipeline killed; each letter once and in order."""
    progress, done = Progress(), threading.Event()
    with ExitStack() as opened:
        started = opened.enter_context(node_processes(tmp_path, *DOMAINS))
        urls = {domain: url for domain, (url, _) in started.items()}
        nodes = [process for _, process in started.values()]
        the_pipeline = opened.enter_context(pipeline(tmp_path, interval=0.25))
        threads = opened.enter_context(ThreadPoolExecutor(20))

        roamers = []
        for number in range(SUBSCRIBERS):
            client = opened.enter_context(Client(urls[DOMAINS[number % 3]], delays=RETRIES))
            client.register_subscriber(f"roamer-{number}")
            client.subscribe(terms=["news"], id=f"news-{number}")
            name = client.me()["name"]
            roamers.append(Roamer(client, name, random.Random(number), list(urls.values()), progress))
        sources = []
        for domain in DOMAINS:
            source = opened.enter_context(Client(urls[domain], delays=RETRIES))
            source.register_source(f"paper-{domain}")
            sources.append(source)

        names = [roamer.name for roamer in roamers]
        living = [threads.submit(roamer.live, names, done) for roamer in roamers]
        outbox = Outbox(tmp_path / "outbox")
        kills = PipelineKills(the_pipeline, outbox, random.Random(20263), PIPELINE_KILLS, while_starting={1})
        writing = [threads.submit(publish, source, EVENTS // 3, kills, progress) for source in sources]
        killing = [threads.submit(kill_nodes, nodes, random.Random(20262), progress), threads.submit(kills.run)]

        def is_complete() -> bool:
            """Whether everything is sent, and all letters, also surplus ones, are in the mailboxes."""
            for task in [*living, *writing, *killing]:
                if task.done():
                    task.result()
            return (
                all(task.done() for task in [*writing, *killing])
                and all(roamer.sent.total() == MESSAGES // SUBSCRIBERS + SUBSCRIBERS - 1 for roamer in roamers)
                and is_drained(tmp_path, *DOMAINS)
            )

        try:
            until(is_complete, 600, "all letters to be in the mailboxes")
        finally:
            done.set()
        for task in living:
            task.result(240)
        assert [roamer.client.pull() for roamer in roamers] == [[]] * len(roamers)

    expected = Counter({(roamer.name, to): count for roamer in roamers for to, count in roamer.sent.items()})
    assert sum(roamer.migrations for roamer in roamers) == MIGRATIONS
    assert expected.total() == MESSAGES + SUBSCRIBERS * (SUBSCRIBERS - 1)
    assert len(roamers) * EVENTS + expected.total() >= 20_000
    for roamer in roamers:
        for domain in DOMAINS:
            seqs = [seq for source, seq in roamer.events if source == f"paper-{domain}"]
            assert seqs == list(range(1, EVENTS // 3 + 1)), f"events of {domain} to {roamer.name}"
        for sender in names:
            numbers = [number for name, number in roamer.messages if name == sender]
            assert numbers == list(range(1, expected[sender, roamer.name] + 1)), f"from {sender} to {roamer.name}"
        assert len(roamer.events) == EVENTS
