"""Requests that concern other nodes: a binding ends when its replacement is confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from control_writers import NEAREST, SECONDS, World, world

from roamcast.bind.lcesm.messages import SourceRegistered
from roamcast.model import Position
from roamcast.node.control.peer_requests import PeerRequests
from roamcast.node.control.request_group import RequestGroup


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    """Ann is bound to a."""
    with world(tmp_path) as node:
        node.source("a", (0, 0))
        node.subscriber("ann", (9, 0))
        node.subscribe("q", "ann", NEAREST)
        yield node


def confirm(requests: PeerRequests) -> None:
    """South confirms what is wanted of it."""
    request = requests.wants_request("south").result(SECONDS)
    clocks = {"sent": 1, "received": 2, "time": 1}
    requests.receive_wants("south", request, request.version, **clocks, journal_ends={}, drained={}).result(SECONDS)


def bound(node: World) -> list[str]:
    return [binding.source for binding in node.registry.live_bindings()]


def test_a_confirmation_in_the_same_group_does_not_count_for_a_new_source(node: World) -> None:
    """What is wanted of its node follows from this group. The binding ends with the next confirmation."""
    requests = PeerRequests(node.control, node.clock)
    requests.join_node("south", linked=True).result(SECONDS)
    confirm(requests)

    def apply(group: RequestGroup) -> None:
        group.apply_source_messages([SourceRegistered("b@south", {}, Position("b@south", 8, 0, 1))])
        group.confirm_wants()

    node.control.submit(apply).result(SECONDS)
    assert bound(node) == ["a", "b@south"]
    confirm(requests)
    assert bound(node) == ["b@south"]
