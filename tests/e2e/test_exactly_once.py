"""Every letter arrives exactly once and in order while node and pipeline are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pyarrow.compute as pc
import pytest
from drains import is_drained
from kills import PipelineKills

from roamcast.archive.reader import open_archive
from roamcast.client import Client
from roamcast.deliver.outbox import Outbox
from roamcast.journal.records import TRACK
from roamcast.lab.bench.processes import Process, free_port, node, pipeline, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2_400)]

EVENTS = 5_000
SOURCES = 5
MOVES = 3
PIPELINE_KILLS = 2
# For each start: whether letters are made by jobs or in the driver, and in how many shards.
WAYS = (
    {"DRIVER_EVENTS": "0", "LETTER_SHARDS": "2"},
    {"DRIVER_EVENTS": "5000", "LETTER_SHARDS": "3"},
    {"DRIVER_EVENTS": "0", "LETTER_SHARDS": "1"},
)
# Client retries: long enough to survive a node's restart.
RETRIES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 5.0, 5.0, 5.0, 10.0)

# id -> (subscriber, box, terms)
SUBSCRIPTIONS = {
    "all-of-it": ("ann", (-10.0, -10.0, 10.0, 10.0), ()),
    "fire-anywhere": ("ann", None, ("fire",)),
    "north": ("bob", (-10.0, 0.0, 10.0, 10.0), ("smoke",)),
    "both": ("cleo", (0.0, 0.0, 10.0, 10.0), ("fire", "smoke")),
    "elsewhere": ("dan", (20.0, 20.0, 21.0, 21.0), ("fire",)),
    "last": ("dan", None, ("last",)),
}


@dataclass(frozen=True)
class Sent:
    """An event that a source publishes."""

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
    """A subscriber that pulls and acknowledges. It collects each letter as often as it was given."""

    client: Client
    letters: list[tuple[str, str, int]] = field(default_factory=list)
    offset: int = 0

    def read_until(self, done: threading.Event) -> None:
        """Read until `done` is set, then read the rest."""
        while not done.is_set():
            self.read(1.0)
        while self.read(0.0):
            pass

    def read(self, wait: float) -> int:
        """Returns the number of letters pulled."""
        letters = self.client.pull(after=self.offset, wait=wait, limit=200)
        for letter in letters:
            self.letters.append((letter.subscription, letter.event["source"], letter.event["seq"]))
            self.offset = letter.offset
        if self.offset:
            self.client.acknowledge(self.offset)
        return len(letters)


def random_events(source: str, chance: random.Random) -> list[Sent]:
    """Events of one source. The last one matches a subscription of every subscriber."""
    words = ("fire", "smoke", "rain")
    events = [
        Sent(
            source,
            seq,
            chance.choice((-10.0, -5.0, 0.0, 5.0, 10.0, 15.0)),
            chance.choice((-5.0, 0.0, 5.0)),
            tuple(word for word in words if chance.random() < 0.5),
        )
        for seq in range(1, EVENTS // SOURCES)
    ]
    return [*events, Sent(source, EVENTS // SOURCES, 5.0, 5.0, ("fire", "smoke", "last"))]


def publish(client: Client, events: list[Sent], chance: random.Random, kills: PipelineKills) -> None:
    """Publish in bulks, spread over the kills of the pipeline.

    Some bulks are sent twice, as by a source that missed the response. The last event is sent after the last kill.
    """
    for bulk in bulks(events, 20):
        kills.wait_for_stage((bulk[0].seq - 1) / len(events))
        for _ in range(2 if chance.random() < 0.2 else 1):
            client.publish([event.as_json() for event in bulk])


def bulks(events: list[Sent], size: int) -> Iterator[list[Sent]]:
    for start in range(0, len(events), size):
        yield events[start : start + size]


def kill_node(process: Process, kills: PipelineKills) -> None:
    """Kill the node while the pipeline starts again."""
    kills.progress.wait_for("kills", 1)
    process.kill()
    process.start()


def check_archive(data: Path, sent: list[Sent]) -> None:
    """What the node acknowledged is in the archive once."""
    archive = open_archive(data)
    events = archive.events_table().to_pylist()
    found = sorted((row["entity"], row["seq"], row["x"], row["y"], tuple(row["terms"])) for row in events)
    assert found == sorted((each.source, each.seq, each.x, each.y, each.terms) for each in sent)
    (coverage,) = archive.coverage()["local"]
    assert coverage.first_offset == 1
    for begin in (coverage.begin + 1, coverage.end):  # the first snapshot, and one after the node was killed
        snapshot, changes, _ = archive.tracks("local", begin)
        tracks = changes.filter(pc.equal(changes["kind"], TRACK)).select(["entity", "x", "y"]).to_pylist()
        sources = {row["entity"]: row["x"] for row in snapshot.to_pylist() if row["x"] is not None}
        moves = [(f"source-{number}", x, number) for number in range(SOURCES) for x in range(MOVES)]
        if sources:
            assert (sources, tracks) == ({name: MOVES - 1 for name, _, _ in moves}, [])
        else:
            assert [(row["entity"], row["x"], row["y"]) for row in tracks] == moves


def test_every_letter_arrives_once_and_in_order_while_processes_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 events, some posted twice; pipeline and node killed; each expected letter pulled exactly once.

    Each start makes letters in another way. The archive has each event and move once, too, though it is compacted.
    """
    monkeypatch.setenv("ROAMCAST_ARCHIVE", "true")
    monkeypatch.setenv("ROAMCAST_PIPELINE__ARCHIVE", "true")
    ways = cycle(WAYS)

    def choose_way() -> None:
        for name, value in next(ways).items():
            monkeypatch.setenv(f"ROAMCAST_PIPELINE__{name}", value)

    choose_way()
    chance = random.Random(20261)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    done = threading.Event()
    with node(tmp_path, port) as the_node, pipeline(tmp_path) as the_pipeline, ThreadPoolExecutor(16) as threads:
        readers: dict[str, Reader] = {}
        for name, (subscriber, box, terms) in SUBSCRIPTIONS.items():
            if subscriber not in readers:
                readers[subscriber] = Reader(Client(url, delays=RETRIES))
                readers[subscriber].client.register_subscriber(subscriber)
            readers[subscriber].client.subscribe(id=name, box=box, terms=terms)
        senders = []
        for number in range(SOURCES):
            client = Client(url, delays=RETRIES)
            client.register_source(f"source-{number}")
            for step in range(MOVES):
                client.move(step, number)
            senders.append((client, random_events(f"source-{number}", chance)))
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
        last = {name: {letter for letter in expected[name] if letter[2] == EVENTS // SOURCES} for name in readers}

        kills = PipelineKills(
            the_pipeline, Outbox(tmp_path / "outbox"), chance, PIPELINE_KILLS, before_start=choose_way
        )
        reading = [threads.submit(reader.read_until, done) for reader in readers.values()]
        publishing = [
            threads.submit(publish, client, events, random.Random(events[0].source), kills)
            for client, events in senders
        ]
        killing = threads.submit(kills.run)
        killing_node = threads.submit(kill_node, the_node, kills)

        def is_complete() -> bool:
            """Whether all events are published, and all their letters, also surplus ones, are in the mailboxes."""
            for task in [*reading, *publishing, killing, killing_node]:
                if task.done():
                    task.result()
            return all(task.done() for task in [*publishing, killing, killing_node]) and is_drained(tmp_path, "local")

        try:
            until(is_complete, 600, "all letters to be in the mailboxes")
        finally:
            done.set()
        killed_after = killing.result(240)
        for task in reading:
            task.result(240)
        assert [reader.client.pull() for reader in readers.values()] == [[]] * len(readers)
        check_archive(tmp_path, [event for _, events in senders for event in events])
        assert the_pipeline.stop() == 0

    assert len(killed_after) == PIPELINE_KILLS
    assert killed_after == sorted(set(killed_after)), "each kill hit a pipeline that had done another batch"
    for name, reader in readers.items():
        assert sorted(reader.letters) == sorted(expected[name]), f"the letters of {name}"
        for subscription in {subscription for subscription, _, _ in reader.letters}:
            for source in range(SOURCES):
                seqs = [n for s, o, n in reader.letters if s == subscription and o == f"source-{source}"]
                assert seqs == sorted(seqs), f"order of source-{source} for {name}"
    assert all(last.values())
    assert {subscription for subscription, _, _ in readers["dan"].letters} == {"last"}
