"""Two nodes with a data folder and a pipeline each: events published at one reach subscriptions at the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from backbone import backbone
from nodes import ServedNode, running_node, until
from pyspark.sql import SparkSession
from streams import running_stream

from roamcast.client import Client, Letter

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_200)]


NEAREST = "Select Where &context = noise and &location in nearest"
REGION = 'Select all() Where &location in box(7, 52, 9, 54) and &terms has ("fire")'


class Hosts:
    """North and south, joined, each with a pipeline."""

    def __init__(self, spark: SparkSession, folder: Path, opened: ExitStack) -> None:
        self.nodes: dict[str, ServedNode] = opened.enter_context(backbone(folder, "north", "south", silence=3.0))
        self._opened = opened
        for domain in self.nodes:
            opened.enter_context(running_stream(spark, folder / domain))

    def client(self, domain: str, token: str | None = None) -> Client:
        return self._opened.enter_context(Client(self.nodes[domain].url, token))

    def restart(self, domain: str) -> None:
        """Start a node that was stopped, at another port."""
        node = running_node(self.nodes[domain].data, domain=domain, silence=3.0)
        self.nodes[domain] = self._opened.enter_context(node)

    def wait_for_clocks(self, domain: str, source: str) -> None:
        """Wait for as long as now may be before or after, by the clock of the host of the source."""
        bounds = self.nodes[domain].service.control.peer_wants.own.clock_bounds(source)
        end = time.time_ns() // 1_000 + max(bounds.most, -bounds.least, 0)
        until(lambda: time.time_ns() // 1_000 > end, "the clocks")


class Reader:
    """A subscriber in the north that reads everything."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self.client = hosts.client("north")
        self.token = self.client.register_subscriber("ann", x=8.1, y=53.0)
        self.letters: list[Letter] = []

    def reconnect(self) -> None:
        self.client = self._hosts.client("north", self.token)

    def states(self) -> dict[str, str]:
        return {one.id: one.state for one in self.client.subscriptions()}

    def until_states(self, **states: str) -> None:
        until(lambda: self.states() == states, f"{states}")

    def numbers(self, subscription: str) -> list[int]:
        return [int(letter.event["readings"]["n"]) for letter in self.letters if letter.subscription == subscription]

    def read(self, count: int) -> None:
        """Until there are that many letters in all."""

        def received() -> bool:
            pulled = self.client.pull(limit=100, wait=1)
            self.letters.extend(pulled)
            if pulled:
                self.client.acknowledge(pulled[-1])
            return len(self.letters) >= count

        try:
            until(received, f"{count} letters")
        except TimeoutError as error:
            read = {name: self.numbers(name) for name in self.states()}
            raise AssertionError(f"{error}: {read}, {self.client.subscriptions()}") from error


@pytest.fixture
def hosts(spark: SparkSession, tmp_path: Path) -> Iterator[Hosts]:
    with ExitStack() as opened:
        yield Hosts(spark, tmp_path, opened)


def publish(source: Client, first: int, last: int) -> None:
    """One event after the other, which carry these numbers."""
    for number in range(first, last + 1):
        source.publish({"terms": ["fire"], "readings": {"n": number}})


def test_events_of_another_host_reach_bound_and_region_subscriptions(hosts: Hosts) -> None:
    """Each once, in order, from the moment the subscriptions are active, however often either node restarts."""
    b4 = hosts.client("south")
    token = b4.register_source("b4", attributes={"context": "noise"}, x=8.0, y=53.0)
    publish(b4, 1, 1)
    hosts.wait_for_clocks("north", "b4@south")
    ann = Reader(hosts)
    ann.client.subscribe(NEAREST, id="near")
    ann.client.subscribe(REGION, id="region")
    ann.until_states(near="active", region="active")
    publish(b4, 2, 11)
    ann.read(21)
    assert (ann.numbers("near"), ann.numbers("region")) == (list(range(1, 12)), list(range(2, 12)))

    hosts.nodes["north"].stop()
    publish(b4, 12, 21)
    hosts.restart("north")
    ann.reconnect()
    publish(b4, 22, 31)
    ann.read(61)

    hosts.nodes["south"].stop()
    ann.until_states(near="unreachable", region="partial")
    (near, region) = ann.client.subscriptions()
    assert near.sources == ("b4@south",)
    assert "south does not respond" in str(near.why)
    assert "south does not respond" in str(region.why)
    hosts.restart("south")
    b4 = hosts.client("south", token)
    publish(b4, 32, 41)
    ann.read(81)
    ann.until_states(near="active", region="active")
    ann.client.unsubscribe("region")
    hosts.wait_for_clocks("north", "b4@south")
    publish(b4, 42, 46)
    ann.read(86)
    assert ann.numbers("near") == list(range(1, 47))
    assert ann.numbers("region") == list(range(2, 42))


def test_a_nearer_source_of_another_host_takes_over_without_a_gap(hosts: Hosts) -> None:
    """The source at home stays bound until the other host has confirmed; then it ends."""
    home, away = hosts.client("north"), hosts.client("south")
    home.register_source("home", attributes={"context": "noise"}, x=8.2, y=53.0)
    away.register_source("away", attributes={"context": "noise"}, x=8.9, y=53.0)
    ann = Reader(hosts)
    ann.client.subscribe(NEAREST, id="near")
    ann.until_states(near="active")
    publish(home, 1, 3)
    publish(away, 1, 3)
    ann.read(3)
    away.move(8.1, 53.0)
    until(lambda: ann.client.subscription("near").sources == ("away@south",), "the nearer source to be bound")
    ann.until_states(near="active")
    publish(home, 4, 6)
    publish(away, 4, 6)
    ann.read(6)
    assert [(letter.event["source"], letter.event["readings"]["n"]) for letter in ann.letters] == [
        ("home", 1), ("home", 2), ("home", 3), ("away", 4), ("away", 5), ("away", 6),
    ]  # fmt: skip
