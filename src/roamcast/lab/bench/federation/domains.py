"""Domains of the federation benchmark: real node processes, and subscriptions that are there when they start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from roamcast.client import Client, Subscription
from roamcast.lab.bench.federation.workload import BoxSubscription, Workload
from roamcast.lab.bench.processes import Process, free_port, node, until

__all__ = ["Domain", "add_subscriptions"]

_TIMEOUT: Final = 900.0  # seconds
_PENDING: Final = 2_000  # requests to the control writer at a time


class Domain:
    """A domain with a data folder of its own, on a fixed port."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.data = folder / name
        self.data.mkdir()
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    @contextmanager
    def node(self, *arguments: str) -> Iterator[Process]:
        with node(self.data, self._port, "--domain", self.name, *arguments) as process:
            yield process

    def operator(self) -> Client:
        return Client(self.url, (self.data / "operator.token").read_text().strip(), timeout=60.0)

    def register_sources(self, workload: Workload) -> dict[str, str]:
        """Register the sources of the domain; returns their tokens."""
        tokens = {}
        for source in workload.sources(self.name):
            with Client(self.url) as client:
                tokens[source.id] = client.register_source(
                    source.id, attributes=source.attributes, x=source.x, y=source.y
                )
        return tokens

    def register_subscribers(self, workload: Workload) -> dict[str, str]:
        """Register the subscribers; returns their tokens."""
        tokens = {}
        for id, (x, y) in workload.subscribers.items():
            with Client(self.url) as client:
                tokens[id] = client.register_subscriber(id, x=x, y=y)
        return tokens

    def metrics(self) -> Mapping[str, float]:
        """The metrics of the node, by name and labels as in the Prometheus format."""
        text = httpx.get(f"{self.url}/metrics", timeout=60.0).text
        samples = re.findall(r"^(\w+(?:{.*})?) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in samples}

    def wait_for_pipeline(self) -> None:
        """Wait until the pipeline has read everything that the node has journalled."""

        def has_read() -> bool:
            metrics = self.metrics()
            return (
                metrics["roamcast_pipeline_heartbeat_age_seconds"] < 10 and not metrics["roamcast_pipeline_lag_records"]
            )

        until(has_read, _TIMEOUT, f"the pipeline of {self.name}")

    def wait_until_active(self, ids: Iterable[str]) -> None:
        """Wait until these subscriptions are active."""
        waiting = list(ids)
        with self.operator() as operator:

            def are_active() -> bool:
                while waiting and operator.subscription(waiting[-1]).state == "active":
                    waiting.pop()
                return not waiting

            until(are_active, _TIMEOUT, f"subscriptions of {self.name} to be active")

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, which takes a while."""
        with self.operator() as operator:
            return operator.subscriptions()


def add_subscriptions(domain: Domain, workload: Workload) -> None:
    """Add all subscriptions to a domain whose node does not run, through its control writer.

    Over HTTP they would come one by one, which takes much longer and is not what is measured.
    """
    from roamcast.node.service import Node
    from roamcast.settings import node_settings

    async def add() -> None:
        control_node = Node(node_settings(data=domain.data, domain=domain.name))
        async with control_node.running():
            queries = control_node.queries
            pending: list[Future[bool]] = []
            for subscription in workload.subscriptions():
                if isinstance(subscription, BoxSubscription):
                    query = queries.accept_box(subscription.box, subscription.terms)
                else:
                    query = queries.accept(subscription.text)
                pending.append(control_node.control.subscribe(subscription.id, subscription.subscriber, query))
                if len(pending) == _PENDING:
                    await asyncio.gather(*map(asyncio.wrap_future, pending))
                    pending.clear()
            await asyncio.gather(*map(asyncio.wrap_future, pending))

    asyncio.run(add())
