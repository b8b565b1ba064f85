"""The hosts, their sources and what is published there, as all threads of hosts_driver.py see them."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
from hosts_ledger import Batch, Ledger, Point, terms_of

from roamcast import Client

POSTS = 2
BULK = 50
PAUSE = 0.35  # seconds between the batches of a source, for each domain
RETRIES = (0.1, 0.2, 0.5, 1.0, 2.0, *[3.0] * 20)
STEPS = ("migrations", "changes by visitors")
LEAST = {"region": 1 / 3, "follower": 1 / 20, "roamer": 1 / 20}
"""Of the events that are published at least, how many must arrive at the subscribers of a kind in each domain."""
AWAY = 60.0  # latitude of a tram that is in no region


class World:
    """What all threads share."""

    def __init__(self, urls: dict[str, str], folder: Path) -> None:
        self.urls = urls
        self.domains = list(urls)
        self.folder = folder
        self.run = folder.name
        self.ledger = Ledger()
        self.sources: dict[str, Client] = {}
        self.counts: Counter[str] = Counter()
        self.steps = (folder / "steps").open("ab", buffering=0)
        self.over = threading.Event()

    def count(self, what: str) -> None:
        self.counts[what] += 1
        if what in STEPS:
            self.steps.write(b".")

    @property
    def faults_are_over(self) -> bool:
        return (self.folder / "over").exists()

    def has_enough(self, events: int) -> bool:
        """Whether enough has happened: steps, and `LEAST` of so many events that must arrive."""
        if min(self.counts[step] for step in (*STEPS, "moves of sources")) < len(self.domains):
            return False
        must: Counter[tuple[str, str]] = Counter()
        for entry in list(self.ledger.entries.values()):
            must[entry.id.partition("-")[0].rstrip("0123456789"), entry.home] += len(self.ledger.must(entry))
        return all(must[kind, home] >= share * events for kind, share in LEAST.items() for home in self.domains)

    def lag(self) -> int:
        """How many records wait for a pipeline."""
        return sum(int(httpx.get(f"{url}/healthz").json()["lag"]["records"]) for url in self.urls.values())

    def post(self, domain: str, number: int) -> Point:
        return 10.0 * self.domains.index(domain) + number, 50.0

    def source(self, domain: str, number: int) -> str:
        return f"{domain}-{self.run}{number}"

    def context(self, domain: str) -> str:
        return f"{domain}_{self.run}"

    def next_domain(self, domain: str) -> str:
        return self.domains[(self.domains.index(domain) + 1) % len(self.domains)]

    def register_sources(self) -> None:
        for domain in self.domains:
            for number in range(POSTS + 1):
                kind = "post" if number < POSTS else "tram"
                x, y = self.post(domain, number) if kind == "post" else (self.post(domain, 0)[0], AWAY)
                name, source = self.source(domain, number), Client(self.urls[domain], delays=RETRIES)
                move = self.ledger.move_source(name, (x, y), time.monotonic())
                source.register_source(name, attributes={"context": self.context(domain), "kind": kind}, x=x, y=y)
                move.acknowledged = time.monotonic()
                self.sources[name] = source

    def move_source(self, name: str, point: Point) -> None:
        move = self.ledger.move_source(name, point, time.monotonic())
        self.sources[name].move(*point)
        move.acknowledged = time.monotonic()
        self.count("moves of sources")

    def publish(self, domain: str, total: int) -> None:
        """At least so many events of the sources of a domain, and until it is over."""
        names = [name for name in self.sources if name.startswith(f"{domain}-")]
        for first in itertools.count(0, BULK):
            if first * len(names) >= total and self.over.is_set():
                return
            for name in names:
                numbers, sent = range(first, first + BULK), time.monotonic()
                self.sources[name].publish([{"readings": {"n": n}, "terms": terms_of(n)} for n in numbers])
                self.ledger.publish(Batch(name, numbers, sent, time.monotonic()))
            time.sleep(PAUSE * len(self.domains))
