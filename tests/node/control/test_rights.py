"""Ids that change hands while a request about them waits for the control writer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from nodes import LIMIT, RunningNode, bearer, until

from roamcast.client import Client
from roamcast.node.callers import Caller
from roamcast.security.tokens import hash_token
from roamcast.store.registry.values import Entity

POINT = {"x": 1.0, "y": 2.0}
NOISE = {"context": "noise"}
NEW_TOKEN = "n" * 43


@contextmanager
def busy_writer(node: RunningNode) -> Iterator[None]:
    """A control writer that handles nothing before the end. Then, what waits, in order."""
    go = threading.Event()
    node.service.control.query(lambda _: go.wait(LIMIT))
    until(lambda: waiting(node) == 0, "the writer to wait")
    try:
        yield
    finally:
        go.set()


def waiting(node: RunningNode) -> int:
    """How many requests wait for the control writer."""
    return len(node.service.control._commits._waiting)


def caller(client: Client, id: str) -> Caller:
    return Caller(id, "gateway", hash_token(str(client.token)))


def send_late(node: RunningNode, client: Client, change_hands: Any, method: str, path: str, json: Any) -> int:
    """The status of a request that waits when an id changes hands, and is handled after that."""
    with ThreadPoolExecutor(1) as threads:
        with busy_writer(node):
            done = change_hands()
            before = waiting(node)
            late = threads.submit(node.http.request, method, path, json=json, headers=bearer(client))
            until(lambda: waiting(node) > before or late.done(), "the late request to wait")
            assert not late.done(), "the request does not reach the writer, which alone knows better"
        response: httpx.Response = late.result(LIMIT)
    for future in done:
        future.result(LIMIT)
    return response.status_code


@pytest.mark.parametrize(
    ("method", "path", "json"),
    [
        ("PUT", "/v1/sources/s/attributes", {"floor": 1}),
        ("DELETE", "/v1/sources/s/position", None),
        ("DELETE", "/v1/sources/s", None),
        ("POST", "/v1/positions", [{"entity": "a", **POINT}, {"entity": "s", "x": 5.0, "y": 5.0}]),
        ("GET", "/v1/entities/s", None),
    ],
)
def test_a_gateway_has_no_right_to_a_source_that_has_just_changed_hands(
    node: RunningNode, method: str, path: str, json: Any
) -> None:
    """Nor does it learn anything of the new one."""
    old, new = node.gateway("old", "s", "a"), node.gateway("new")
    source = Entity("s", "source", None, NOISE, None, "new")

    def change_hands() -> list[Any]:
        gateways = node.service.gateway_requests
        return [
            gateways.remove_sources(caller(old, "old"), ["s"]),
            gateways.register_sources(caller(new, "new"), [source]),
        ]

    assert send_late(node, old, change_hands, method, path, json) == 403
    shown = new.entity("s")
    assert (shown["gateway"], shown["attributes"], shown["position"]) == ("new", NOISE, None)
    assert old.entity("a")["position"] is None


@pytest.mark.parametrize(
    ("method", "path", "json"),
    [
        ("PUT", "/v1/sources/s/attributes", {"floor": 1}),
        ("DELETE", "/v1/sources/s", None),
        ("POST", "/v1/sources", {"id": "more"}),
        ("POST", "/v1/sources", [{"id": "more"}]),
        ("POST", "/v1/positions", {"entity": "s", **POINT}),
        ("PUT", "/v1/me/attributes", {"floor": 1}),
        ("DELETE", "/v1/me?sources=true", None),
        ("POST", "/v1/entities/hub/token", None),
    ],
)
def test_a_gateway_has_no_rights_of_another_one_with_the_same_id(
    node: RunningNode, method: str, path: str, json: Any
) -> None:
    hub = node.gateway("hub", "s")

    def change_hands() -> list[Any]:
        control, gateways = node.service.control, node.service.gateway_requests
        return [
            gateways.remove_sources(caller(hub, "hub"), ["s"]),
            control.remove("hub"),
            control.register(Entity("hub", "gateway", hash_token(NEW_TOKEN), NOISE)),
            gateways.register_sources(
                Caller("hub", "gateway", hash_token(NEW_TOKEN)), [Entity("s", "source", None, NOISE, None, "hub")]
            ),
        ]

    assert send_late(node, hub, change_hands, method, path, json) == 401
    new = node.client(NEW_TOKEN)
    assert [(one["id"], one["attributes"], one["position"]) for one in new.sources()] == [("s", NOISE, None)]
    assert new.me()["attributes"] == NOISE


@pytest.mark.parametrize(
    ("method", "path", "json"),
    [
        ("PUT", "/v1/me/attributes", {"floor": 1}),
        ("POST", "/v1/positions", POINT),
        ("DELETE", "/v1/me/position", None),
        ("DELETE", "/v1/me", None),
        ("POST", "/v1/entities/s/token", None),
    ],
)
def test_a_source_has_no_rights_of_another_one_with_the_same_id(
    node: RunningNode, method: str, path: str, json: Any
) -> None:
    source = node.source("s")

    def change_hands() -> list[Any]:
        control = node.service.control
        return [control.remove("s"), control.register(Entity("s", "source", hash_token(NEW_TOKEN), NOISE))]

    assert send_late(node, source, change_hands, method, path, json) == 401
    me = node.client(NEW_TOKEN).me()
    assert (me["attributes"], me["position"]) == (NOISE, None)
