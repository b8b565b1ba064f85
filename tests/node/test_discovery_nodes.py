"""Sources of other nodes: found, bound, re-bound and told to sleep, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backbone import backbone, knows
from nodes import RunningNode, running_node, until

from roamcast.client import Client

NEAREST = "Select Where &context = noise and &location in nearest"
NOISE = {"context": "noise"}
SETTINGS: dict[str, Any] = {"space": "planar", "silence": 3.0}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, RunningNode]]:
    with backbone(tmp_path, "north", "south", "west", **SETTINGS) as nodes:
        yield nodes


def sources_of(ann: Client, id: str) -> tuple[str, ...]:
    return ann.subscription(id).sources


def bound(ann: Client, id: str, *sources: str) -> None:
    until(lambda: sources_of(ann, id) == sources, f"{id} to be bound to {sources}")


def wanted(node: RunningNode, source: Client) -> bool:
    answer = node.http.get("/v1/me/demand", headers={"authorization": f"Bearer {source.token}"})
    return bool(answer.json()["wanted"])


def test_the_nearest_of_all_nodes_is_bound(nodes: dict[str, RunningNode]) -> None:
    """Whichever node it is registered with, and again as the subscriber moves."""
    for number, node in enumerate(nodes.values()):
        node.source(f"b{number}", attributes=NOISE, x=10.0 * number, y=0.0)
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="q")
    bound(ann, "q", "b0")
    for x, source in ((11.0, "b1@south"), (21.0, "b2@west"), (9.0, "b1@south"), (1.0, "b0")):
        ann.move(x, 0.0)
        bound(ann, "q", source)


def test_a_source_that_moves_changes_or_leaves_at_another_node_is_noticed(nodes: dict[str, RunningNode]) -> None:
    """And so is a new one."""
    near = nodes["south"].source("near", attributes=NOISE, x=1.0, y=0.0)
    nodes["west"].source("far", attributes=NOISE, x=50.0, y=0.0)
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="q")
    bound(ann, "q", "near@south")
    near.move(60.0, 0.0)
    bound(ann, "q", "far@west")
    near.move(2.0, 0.0)
    bound(ann, "q", "near@south")
    near.change({"context": "light"})
    bound(ann, "q", "far@west")
    near.change(NOISE)
    bound(ann, "q", "near@south")
    near.leave()
    bound(ann, "q", "far@west")
    nodes["south"].source("newest", attributes=NOISE, x=0.5, y=0.0)
    bound(ann, "q", "newest@south")


def test_only_what_is_wanted_is_awake(nodes: dict[str, RunningNode]) -> None:
    """A source sleeps unless somebody is bound to it, at any node, or could match its events."""
    south, west = nodes["south"], nodes["west"]
    near = south.source("near", attributes=NOISE, x=1.0, y=0.0)
    far = west.source("far", attributes=NOISE, x=50.0, y=0.0)

    def awake(is_near: bool, is_far: bool) -> None:
        until(lambda: (wanted(south, near), wanted(west, far)) == (is_near, is_far), f"{is_near}, {is_far}")

    awake(False, False)
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="q")
    awake(True, False)
    ann.move(60.0, 0.0)
    awake(False, True)
    ann.subscribe("Select all() Where &context = noise and &terms has (loud)", id="m")
    awake(True, True)
    ann.unsubscribe("q")
    awake(True, True)
    ann.unsubscribe("m")
    awake(False, False)


def test_a_node_that_dies_loses_its_bindings_until_it_is_back(tmp_path: Path) -> None:
    """Within the limit the next nearest is bound, and the first again after a restart; over a restart of the
    subscriber's own node the binding stays.
    """
    with backbone(tmp_path, "north", "south", **SETTINGS) as nodes:
        nodes["south"].source("near", attributes=NOISE, x=1.0, y=0.0)
        nodes["north"].source("far", attributes=NOISE, x=50.0, y=0.0)
        ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
        ann.subscribe(NEAREST, id="q")
        bound(ann, "q", "near@south")
        nodes["south"].stop()
        bound(ann, "q", "far")
        with running_node(tmp_path / "south", domain="south", **SETTINGS):
            bound(ann, "q", "near@south")
            before = ann.bindings("q")
            nodes["north"].stop()
            with running_node(tmp_path / "north", domain="north", **SETTINGS) as north:
                until(lambda: knows(north, "south"), "north to know south")
                back = Client(north.url, ann.token)
                assert sources_of(back, "q") == ("near@south",)
                assert back.bindings("q") == before
                back.close()
