"""Demand for the sources of a gateway, in one response or stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from nodes import LIMIT, RunningNode, bearer, in_process_node, until

from roamcast.client import Client
from roamcast.client.streams import SseReader
from roamcast.errors import PermissionDeniedError
from roamcast.security.tokens import hash_token
from roamcast.store.registry.values import Entity

FIRE_AT_A = "Select Where &name = a and &location in nearest"


@contextmanager
def stream(node: RunningNode, gateway: Client) -> Iterator[Iterator[dict[str, Any]]]:
    """The data of the events of a gateway's demand stream."""
    with node.http.stream("GET", "/v1/me/demand/stream", headers=bearer(gateway)) as response:
        reader = SseReader()
        chunks = response.iter_bytes()
        yield (orjson.loads(event.data) for chunk in chunks for event in reader.feed(chunk))


def gateway_with(node: RunningNode, *ids: str) -> Client:
    gateway = node.gateway("g")
    gateway.register_sources([{"id": id, "attributes": {"name": id}, "x": 1, "y": 1} for id in ids])
    return gateway


def test_a_gateway_learns_the_demand_for_each_source(node: RunningNode) -> None:
    gateway, ann = gateway_with(node, "b", "a"), node.subscriber(x=1, y=1)
    headers = bearer(gateway)
    assert node.http.get("/v1/me/demand", headers=headers).json() == {
        "demanded": False,
        "sources": {"a": False, "b": False},
    }
    ann.subscribe(FIRE_AT_A, id="q")
    assert node.http.get("/v1/me/demand", headers=headers).json() == {
        "demanded": True,
        "sources": {"a": True, "b": False},
    }
    assert node.http.get("/v1/me/demand", headers=bearer(node.gateway("h"))).json() == {
        "demanded": False,
        "sources": {},
    }


def test_one_stream_covers_all_sources_of_a_gateway(node: RunningNode) -> None:
    """First all, then those that changed, and new ones. Those of other gateways are not in it."""
    gateway, ann = gateway_with(node, "a", "b"), node.subscriber(x=1, y=1)
    node.gateway("h", "theirs")
    with stream(node, gateway) as events:
        assert next(events) == {"demanded": False, "sources": {"a": False, "b": False}}
        ann.subscribe(FIRE_AT_A, id="q")
        assert next(events) == {"demanded": True, "sources": {"a": True}}
        gateway.register_sources([{"id": "c"}])
        assert next(events) == {"demanded": True, "sources": {"c": False}}
        ann.unsubscribe("q")
        assert next(events) == {"demanded": False, "sources": {"a": False}}


def test_a_stream_ends_when_its_gateway_is_another_one(node: RunningNode) -> None:
    """Which nothing is told of to the one before, even if there was no moment without a gateway."""
    gateway, go, token = node.gateway("g"), threading.Event(), "n" * 43
    with stream(node, gateway) as events:
        assert next(events) == {"demanded": False, "sources": {}}
        control = node.service.control
        control.query(lambda _: go.wait(LIMIT))
        both = [control.remove("g"), control.register(Entity("g", "gateway", hash_token(token)))]
        go.set()
        for each in both:
            each.result(LIMIT)
        node.client(token).register_sources([{"id": "secret"}])
        assert next(events, None) is None


def test_a_ticket_opens_the_demand_stream_of_a_gateway(node: RunningNode) -> None:
    gateway = gateway_with(node, "a")
    ticket = node.http.post("/v1/me/demand/tickets", headers=bearer(gateway)).json()["ticket"]
    with node.http.stream("GET", f"/v1/me/demand/stream?ticket={ticket}") as response:
        assert b'"sources":{"a":false}' in next(response.iter_bytes())


def test_a_client_follows_the_demand_for_the_sources_of_a_gateway(node: RunningNode) -> None:
    """With one stream, and in the background."""
    gateway, ann = gateway_with(node, "a", "b"), node.subscriber(x=1, y=1)
    demanded: dict[str, bool] = {}

    def update(changed: Mapping[str, bool]) -> None:
        demanded.update(changed)

    gateway.on_source_demand(update)
    until(lambda: demanded == {"a": False, "b": False}, "all sources")
    ann.subscribe(FIRE_AT_A, id="q")
    until(lambda: demanded == {"a": True, "b": False}, "the demanded source")
    ann.unsubscribe("q")
    until(lambda: demanded == {"a": False, "b": False}, "the source to be idle")
    gateway.close()


def test_a_source_has_no_sources(node: RunningNode) -> None:
    source = node.source()
    with pytest.raises(PermissionDeniedError, match="only a gateway"):
        next(source.source_demand())
    source.close()


def test_streams_of_a_gateway_are_limited(tmp_path: Any) -> None:
    with in_process_node(tmp_path, limits={"streams": 1}) as node:
        gateway = gateway_with(node, "a")
        with stream(node, gateway) as events:
            next(events)
            answer = node.http.get("/v1/me/demand/stream", headers=bearer(gateway))
            assert (answer.status_code, answer.json()["error"]["message"]) == (
                429,
                "1 streams of this gateway are already open",
            )
