"""Sources and subscribers at several hosts, as a program of its own: publishes, moves, roams and reads.

    python hosts_driver.py FOLDER EVENTS DOMAIN=URL ...

Ids contain the name of the folder, so that the program can run again at the same hosts. Each domain has two posts and a
tram, which are sources of its context, and these subscribers:

- one with a region that contains all posts;
- one with a region around itself, which goes from post to post;
- one that follows the nearest source of the next domain. It moves, and so does the tram of that domain;
- a roamer, with a region and a nearest post. Its mailbox goes from host to host. Wherever that is, it moves, removes
  subscriptions and adds others.

The file `steps` in the folder grows by one byte with each step of a roamer. It goes on until the file `over` appears
there and enough has happened (see `hosts_world`). Then it writes `verdicts.json` (see hosts_ledger.py) and
`counts.json`, and removes all subscriptions.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from hosts_ledger import Box, Entry, Phase, Point, home_of
from hosts_world import AWAY, POSTS, RETRIES, World

from roamcast import Client, ElsewhereError, NotFoundError, RoamcastError, UnavailableError

T = TypeVar("T")

LIMIT = 600.0  # seconds to wait for anything
ROAMERS = 3  # of each domain
EVERYWHERE: Box = (-1, 49, 99, 51)
RADIUS = 30_000  # metres around a walker: a post, but not the next one


def nearest(point: Point, sources: dict[str, Point]) -> str:
    """The nearest source. Ties do not happen: places are chosen so."""
    return min(sources, key=lambda name: math.dist(point, sources[name]))


class Subscriber:
    """A subscriber that stays at home, with a region that never changes."""

    hold = 1.0, 1.0
    """Seconds between two steps."""

    def __init__(self, world: World, home: str, kind: str, point: Point) -> None:
        self.world, self.home, self.point = world, home, point
        self.id = f"{kind}-{home}-{world.run}"
        self.random = random.Random(self.id)
        self.client = Client(world.urls[home], delays=RETRIES)
        self.client.register_subscriber(self.id, x=point[0], y=point[1])
        self.offset = 0
        self.numbers = itertools.count(1)
        self.begin()

    def begin(self) -> None:
        self.region = self.subscribe_to_region(EVERYWHERE, "fire")

    def step(self) -> None:
        """One change, or none."""

    def settle(self) -> None:
        """Wait until all changes are in force."""
        self.wait_until_active(self.region)

    def live(self) -> None:
        while not self.world.over.is_set():
            end = time.monotonic() + self.random.uniform(*self.hold)
            if self.random.random() < 0.5:  # or else letters are in the mailbox when it migrates
                while (left := end - time.monotonic()) > 0:
                    self.attempt(functools.partial(self.read, min(left, 1.0)))
            time.sleep(max(0.0, end - time.monotonic()))
            self.step()
            self.settle()

    def end(self) -> None:
        self.unsubscribe(self.region)

    def has_heard_from(self, domains: Iterable[str]) -> bool:
        return {home_of(source) for source, _ in self.region.got} == set(domains)

    def attempt(self, call: Callable[[], T]) -> T:
        """Repeat a call until it succeeds."""
        end = time.monotonic() + LIMIT
        while True:
            try:
                return call()
            except (UnavailableError, ElsewhereError) as error:
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.id}: {error}") from error
                self.go_on(error)

    def go_on(self, error: RoamcastError) -> None:
        """A call has failed."""

    def read(self, wait: float) -> int:
        """Returns how many letters there were."""
        letters = self.client.pull(limit=1_000, after=self.offset, wait=wait)
        for letter in letters:
            event = letter.event["source"], int(letter.event["readings"]["n"])
            self.world.ledger.read(letter.subscription, event)
            self.offset = letter.offset
        if letters:
            self.client.acknowledge(self.offset)
        return len(letters)

    def subscribe_to_region(self, box: Box, term: str) -> Entry:
        text = f'Select all() Where &location in box{box} and &terms has ("{term}")'
        return self.subscribe(text, Phase(time.monotonic(), box=box, term=term))

    def subscribe(self, text: str, phase: Phase) -> Entry:
        id = f"{self.id}-{next(self.numbers)}"
        entry = self.world.ledger.subscribe(id, self.home, phase)
        self.attempt(lambda: self.client.subscribe(text, id=id))
        return entry

    def unsubscribe(self, entry: Entry) -> None:
        self.world.ledger.request_removal(entry, time.monotonic())
        attempts = itertools.count()

        def remove() -> None:
            is_repeated = next(attempts) > 0
            try:
                self.client.unsubscribe(entry.id)
            except NotFoundError:
                if not is_repeated:
                    raise

        self.attempt(remove)
        entry.remove(time.monotonic())

    def move(self, point: Point) -> None:
        self.point = point
        self.attempt(lambda: self.client.move(*point))

    def wait_until_active(self, entry: Entry) -> None:
        source = entry.phases[-1].source
        end = time.monotonic() + LIMIT
        while entry.phases[-1].active == math.inf:
            shown = self.attempt(lambda: self.client.subscription(entry.id))
            bound = {name.partition("@")[0] for name in shown.sources}
            if shown.state == "active" and bound == ({source} if source else set()):
                entry.activate(time.monotonic())
            elif time.monotonic() > end:
                raise TimeoutError(f"{entry.id} is not active: {shown}, expected {source}")
            else:
                self.attempt(lambda: self.read(0.2))


class Walker(Subscriber):
    """Stays at home, has a region around itself, and goes to posts of all domains."""

    hold = 0.3, 3.0

    def begin(self) -> None:
        text = f'Select all() Where &location in rang:loc({RADIUS}) and &terms has ("fire")'
        self.region = self.subscribe(text, Phase(time.monotonic(), box=self.around(self.point), term="fire"))

    def around(self, point: Point) -> Box:
        """Contains those places of sources that the region does."""
        x, y = point
        return x - 0.4, y - 0.2, x + 0.4, y + 0.2

    def step(self) -> None:
        x, y = self.world.post(self.random.choice(self.world.domains), self.random.randrange(POSTS))
        point = x - 0.1, y
        self.region.change(time.monotonic(), box=self.around(point), term="fire")
        self.move(point)


class Follower(Subscriber):
    """Stays at home and follows the nearest source of the next domain: two posts, and a tram that comes and goes."""

    hold = 2.0, 5.0

    def begin(self) -> None:
        other = self.world.next_domain(self.home)
        self.posts = [self.world.post(other, number) for number in range(POSTS)]
        self.sources = [self.world.source(other, number) for number in range(POSTS + 1)]
        text = f"Select Where &context = {self.world.context(other)} and &location in nearest"
        self.entry = self.subscribe(text, Phase(time.monotonic(), source=self.sources[0]))

    def beside(self, post: int) -> Point:
        x, y = self.posts[post]
        return x - 0.1, y

    def step(self) -> None:
        """It goes to the other post; or the tram comes or goes."""
        tram, point = self.sources[-1], self.point
        positions = {name: self.world.ledger.position(name) for name in self.sources}
        before = nearest(point, positions)
        moves_itself = self.random.random() < 0.5
        if moves_itself:
            point = self.beside(0 if point == self.beside(1) else 1)
        elif positions[tram][1] == AWAY:
            positions[tram] = point[0] + 0.01, point[1]
        else:
            positions[tram] = point[0], AWAY
        if (after := nearest(point, positions)) != before:
            self.entry.change(time.monotonic(), source=after)
        if moves_itself:
            self.move(point)
        else:
            self.world.move_source(tram, positions[tram])

    def settle(self) -> None:
        self.wait_until_active(self.entry)

    def end(self) -> None:
        self.unsubscribe(self.entry)


class Roamer(Subscriber):
    """Takes its mailbox from host to host, and changes what it has at home from wherever that is."""

    hold = 0.3, 1.5

    def begin(self) -> None:
        self.token = self.client.token
        self.name = self.client.me()["name"]
        self.client = self.client_at(self.home)
        self.office = self.home
        self.follow()
        self.choose_region()

    def client_at(self, host: str) -> Client:
        return Client(self.world.urls[host], self.token, name=self.name, delays=())

    def follow(self) -> None:
        """Subscribe to the nearest post of some domain."""
        domain = self.random.choice(self.world.domains)
        self.posts = {self.world.source(domain, number): self.world.post(domain, number) for number in range(POSTS)}
        text = f"Select Where &context = {self.world.context(domain)} and &kind = post and &location in nearest"
        self.nearest = self.subscribe(text, Phase(time.monotonic(), source=nearest(self.point, self.posts)))

    def choose_region(self) -> None:
        """Subscribe to a region around the posts of some domain."""
        x, y = self.world.post(self.random.choice(self.world.domains), 0)
        box = x - 1, y - 1, x + 2, y + 1
        self.region = self.subscribe_to_region(box, self.random.choice(["fire", "smoke"]))

    def step(self) -> None:
        change = self.random.choice([self.migrate, self.migrate, self.walk, self.follow_another, self.replace_region])
        change()
        if change != self.migrate and self.office != self.home:
            self.world.count("changes by visitors")

    def settle(self) -> None:
        self.wait_until_active(self.nearest)
        self.wait_until_active(self.region)

    def end(self) -> None:
        self.unsubscribe(self.nearest)
        self.unsubscribe(self.region)

    def walk(self) -> None:
        x, y = self.world.post(self.random.choice(self.world.domains), self.random.randrange(POSTS))
        point = x - 0.1, y
        if (source := nearest(point, self.posts)) != self.nearest.phases[-1].source:
            self.nearest.change(time.monotonic(), source=source)
        self.move(point)

    def follow_another(self) -> None:
        self.unsubscribe(self.nearest)
        self.follow()

    def replace_region(self) -> None:
        self.unsubscribe(self.region)
        self.choose_region()

    def migrate(self) -> None:
        """Try to take the mailbox to another host; as the same program, or as one that was just started."""
        host = self.random.choice([domain for domain in self.world.domains if domain != self.office])
        client = self.client if self.random.random() < 0.5 else self.client_at(host)
        try:
            if client is self.client:
                client.migrate(self.world.urls[host])
            else:
                client.pull(after=self.offset)
        except (UnavailableError, ElsewhereError):
            self.world.count("failed migrations")
            return
        self.client, self.office = client, host
        self.world.count("migrations")

    def go_on(self, error: RoamcastError) -> None:
        """Read what there is, or go elsewhere."""
        self.world.count("refused requests")
        if isinstance(error, ElsewhereError) or self.random.random() < 0.2:
            self.migrate()
        with suppress(UnavailableError, ElsewhereError):
            self.read(0.0)
        time.sleep(0.1)


def read_rest(world: World, subscribers: Sequence[Subscriber]) -> None:
    """Until everything that must arrive has and no pipeline has anything left to read, and then a little longer."""
    must = {entry.id: world.ledger.must(entry) for entry in world.ledger.entries.values()}

    def is_complete() -> bool:
        return all(must[entry.id] <= set(entry.got) for entry in world.ledger.entries.values())

    end, quiet = time.monotonic() + LIMIT, 0
    with ThreadPoolExecutor(len(subscribers)) as threads:
        while quiet < 3 and time.monotonic() < end:
            new = sum(threads.map(lambda one: one.attempt(functools.partial(one.read, 1.0)), subscribers))
            quiet = quiet + 1 if not new and is_complete() and not world.lag() else 0


def wait_until_over(world: World, events: int) -> None:
    """Until the faults are over, and so much has happened that it shows something."""
    end = time.monotonic() + 2 * LIMIT
    try:
        while not (world.faults_are_over and world.has_enough(events)):
            if time.monotonic() > end:
                raise TimeoutError(f"not enough has happened: {world.counts}")
            time.sleep(0.5)
    finally:
        world.over.set()


def main() -> None:
    folder, total, *hosts = sys.argv[1:]
    world = World(dict(host.split("=", 1) for host in hosts), Path(folder))
    world.register_sources()
    subscribers = [
        kind(world, domain, name, (world.post(where(domain), 0)[0] - 0.1, 50.0))
        for domain in world.domains
        for kind, name, where in (
            (Subscriber, "region", str),
            (Walker, "walker", str),
            (Follower, "follower", world.next_domain),
            *((Roamer, f"roamer{number}", str) for number in range(ROAMERS)),
        )
    ]
    for subscriber in subscribers:
        subscriber.settle()
    with ThreadPoolExecutor(50) as threads:
        running = [threads.submit(world.publish, domain, int(total) // len(hosts)) for domain in world.domains]
        for subscriber in subscribers:
            while type(subscriber) is Subscriber and not subscriber.has_heard_from(world.domains):
                subscriber.read(1.0)
        (world.folder / "active").touch()
        running += [threads.submit(subscriber.live) for subscriber in subscribers]
        running.append(threads.submit(wait_until_over, world, int(total)))
        for one in running:
            one.result()
    read_rest(world, subscribers)
    verdicts = {entry.id: world.ledger.verdict(entry) for entry in world.ledger.entries.values()}
    counts = {**world.counts, "events": world.ledger.published, "subscriptions": len(verdicts)}
    (world.folder / "verdicts.json").write_text(json.dumps(verdicts))
    (world.folder / "counts.json").write_text(json.dumps(counts))
    for subscriber in subscribers:
        subscriber.end()


if __name__ == "__main__":
    main()
