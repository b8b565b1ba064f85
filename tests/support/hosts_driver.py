"""Sources and subscribers at several hosts, as a program of its own: publishes, moves and reads, and writes a ledger.

    python hosts_driver.py FOLDER EVENTS DOMAIN=URL ...

Each domain has three sources of a context of its own, a subscriber to a region that contains all of them, and one that
follows the nearest source of the next domain and moves half-way. It goes on until the file `over` appears in the
folder. The ledger says, for each subscription, which events it must receive, and which it did receive, in order.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from roamcast import Client, RoamcastError

LIMIT = 240.0  # seconds to wait for anything
SOURCES = 3
BULK = 50
REGION = 'Select all() Where &location in box(-1, 49, 99, 51) and &terms has ("fire")'
PAUSE = 0.3  # seconds
RETRIES = (0.1, 0.2, 0.5, 1.0, 2.0, *[3.0] * 20)


class Driver:
    def __init__(self, urls: dict[str, str]) -> None:
        self.urls = urls
        self.domains = list(urls)
        self.sources: dict[str, Client] = {}
        self.published: dict[str, int] = defaultdict(int)
        self.subscribers: dict[str, Client] = {}
        self.must: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.got: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.following: dict[str, str] = {}  # source, by subscription

    def client(self, domain: str) -> Client:
        return Client(self.urls[domain], delays=RETRIES)

    def place(self, domain: str, number: int) -> tuple[float, float]:
        return 10.0 * self.domains.index(domain) + number, 50.0

    def next_domain(self, domain: str) -> str:
        return self.domains[(self.domains.index(domain) + 1) % len(self.domains)]

    def set_up(self) -> None:
        for domain in self.domains:
            for number in range(SOURCES):
                source = self.client(domain)
                x, y = self.place(domain, number)
                source.register_source(f"{domain}-{number}", attributes={"context": domain}, x=x, y=y)
                self.sources[f"{domain}-{number}"] = source
        for domain in self.domains:
            other = self.next_domain(domain)
            region, follower = self.client(domain), self.client(domain)
            region.register_subscriber(f"region-{domain}")
            region.subscribe(REGION, id=f"r-{domain}")
            x, y = self.place(other, 0)
            follower.register_subscriber(f"follower-{domain}", x=x - 0.1, y=y)
            follower.subscribe(f"Select Where &context = {other} and &location in nearest", id=f"f-{domain}")
            self.subscribers |= {f"r-{domain}": region, f"f-{domain}": follower}
            self.following[f"f-{domain}"] = f"{other}-0"

    def wait_until_active(self) -> None:
        end = time.monotonic() + LIMIT
        for subscription, client in self.subscribers.items():
            while True:
                try:
                    shown = client.subscription(subscription)
                    bound = {name.partition("@")[0] for name in shown.sources}
                    source = self.following.get(subscription, "")
                    if shown.state == "active" and bound in (set(), {source}):
                        break
                except RoamcastError as error:
                    shown = error
                if time.monotonic() > end:
                    raise TimeoutError(f"{subscription} is not active: {shown}")
                time.sleep(0.1)

    def publish(self, total: int, is_over: Callable[[], bool]) -> None:
        """At least so many events, and until it is over: rounds of one bulk request of each source.

        Every second event has the term.
        """
        rounds = 0
        while rounds * len(self.sources) * BULK < total or not is_over():
            rounds += 1
            time.sleep(PAUSE)
            for name, source in self.sources.items():
                numbers = range(self.published[name], self.published[name] + BULK)
                source.publish([{"readings": {"n": n}, "terms": ["fire"] if n % 2 else []} for n in numbers])
                self.published[name] += BULK
                for subscription in self.subscribers:
                    if subscription.startswith("r-"):
                        self.must[subscription] += [(name, n) for n in numbers if n % 2]
                    elif name == self.following[subscription]:
                        self.must[subscription] += [(name, n) for n in numbers]

    def move_followers(self) -> None:
        """To the next source, and wait until it is confirmed. Nothing is published meanwhile."""
        for subscription, client in self.subscribers.items():
            if subscription in self.following:
                domain = self.following[subscription].rpartition("-")[0]
                x, y = self.place(domain, 1)
                client.move(x - 0.1, y)
                self.following[subscription] = f"{domain}-1"
        self.wait_until_active()

    def read(self) -> None:
        """Until everything that must arrive has, and then a little longer."""
        end, quiet = time.monotonic() + LIMIT, 0
        while quiet < 3 and time.monotonic() < end:
            new = 0
            for subscription, client in self.subscribers.items():
                try:
                    letters = client.pull(limit=1_000, wait=0.2)
                    if letters:
                        client.acknowledge(letters[-1])
                except RoamcastError:
                    new = 1
                    continue
                self.got[subscription] += [(one.event["source"], int(one.event["readings"]["n"])) for one in letters]
                new += len(letters)
            complete = all(len(self.got[name]) >= len(self.must[name]) for name in self.subscribers)
            quiet = quiet + 1 if complete and not new else 0


def main() -> None:
    folder, total, *hosts = sys.argv[1:]
    driver = Driver(dict(host.split("=", 1) for host in hosts))
    driver.set_up()
    driver.wait_until_active()
    (Path(folder) / "active").touch()
    driver.publish(int(total) // 2, lambda: True)
    driver.move_followers()
    driver.publish(int(total) - int(total) // 2, (Path(folder) / "over").exists)
    driver.read()
    ledger = {name: [driver.must[name], driver.got[name]] for name in driver.subscribers}
    (Path(folder) / "ledger.json").write_text(json.dumps(ledger))


if __name__ == "__main__":
    main()
