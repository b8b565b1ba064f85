"""Sources of other nodes over real HTTP: discovery, bindings and demand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from backbone import backbone, invitation, knows
from nodes import RunningNode, running_node, until

from roamcast.client import Client
from roamcast.errors import NotFoundError

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
    return bool(answer.json()["demanded"])


def test_the_nearest_source_of_all_nodes_is_bound(nodes: dict[str, RunningNode]) -> None:
    """Whichever node it is registered with, and again as the subscriber moves."""
    for number, node in enumerate(nodes.values()):
        node.source(f"b{number}", attributes=NOISE, x=10.0 * number, y=0.0)
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="q")
    bound(ann, "q", "b0")
    for x, source in ((11.0, "b1@south"), (21.0, "b2@west"), (9.0, "b1@south"), (1.0, "b0")):
        ann.move(x, 0.0)
        bound(ann, "q", source)


def test_changes_of_sources_at_other_nodes_are_noticed(nodes: dict[str, RunningNode]) -> None:
    """Moves, attributes, removals and new sources."""
    near = nodes["south"].source("near", attributes=NOISE, x=1.0, y=0.0)
    nodes["west"].source("far", attributes=NOISE, x=50.0, y=0.0)
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="q")
    bound(ann, "q", "near@south")
    near.move(60.0, 0.0)
    bound(ann, "q", "far@west")
    near.move(2.0, 0.0)
    bound(ann, "q", "near@south")
    near.set_attributes({"context": "light"})
    bound(ann, "q", "far@west")
    near.set_attributes(NOISE)
    bound(ann, "q", "near@south")
    near.unregister()
    bound(ann, "q", "far@west")
    nodes["south"].source("newest", attributes=NOISE, x=0.5, y=0.0)
    bound(ann, "q", "newest@south")


def test_a_stopped_subscription_starts_with_the_nearest_source_of_all_nodes(nodes: dict[str, RunningNode]) -> None:
    """Not with one of its own node first: sources of other nodes are known by then."""
    nodes["north"].source("far", attributes=NOISE, x=50.0, y=0.0)
    nodes["south"].source("near", attributes=NOISE, x=9.0, y=0.0)
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(f"{NEAREST} Life-control #location not in circle(0, 0, 5)", id="q")
    seekers = nodes["north"].service.control.peer_sources.backbone
    until(lambda: "south" in seekers.peers and "near" in seekers.requester("south").sources, "north to know of it")
    ann.move(10.0, 0.0)
    assert [binding.source for binding in ann.bindings("q")] == ["near@south"]


def test_only_used_sources_are_demanded(nodes: dict[str, RunningNode]) -> None:
    """A source is idle unless a binding, at any node, or a subscription may use its events."""
    south, west = nodes["south"], nodes["west"]
    near = south.source("near", attributes=NOISE, x=1.0, y=0.0)
    far = west.source("far", attributes=NOISE, x=50.0, y=0.0)

    def until_demanded(is_near: bool, is_far: bool) -> None:
        until(lambda: (wanted(south, near), wanted(west, far)) == (is_near, is_far), f"{is_near}, {is_far}")

    until_demanded(False, False)
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="q")
    until_demanded(True, False)
    ann.move(60.0, 0.0)
    until_demanded(False, True)
    ann.subscribe("Select all() Where &context = noise and &terms has (loud)", id="m")
    until_demanded(True, True)
    ann.unsubscribe("q")
    until_demanded(True, True)
    ann.unsubscribe("m")
    until_demanded(False, False)


def test_a_removed_peer_is_ignored_until_it_is_invited_again(nodes: dict[str, RunningNode]) -> None:
    """Its sources are gone at once, and back later."""
    nodes["south"].source("near", attributes=NOISE, x=1.0, y=0.0)
    nodes["west"].source("far", attributes=NOISE, x=50.0, y=0.0)
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="q")
    bound(ann, "q", "near@south")
    operator = Client(nodes["north"].url, (nodes["north"].data / "operator.token").read_text().strip())
    operator.expel("south")
    bound(ann, "q", "far@west")
    assert [office["domain"] for office in operator.offices()] == ["west"]
    with pytest.raises(NotFoundError):
        operator.expel("south")
    operator.close()
    nodes["south"].stop()
    again: dict[str, Any] = {"join": nodes["north"].url, "invitation": invitation(nodes["north"], "south")}
    with running_node(nodes["south"].data, domain="south", **again, **SETTINGS):
        bound(ann, "q", "near@south")


def test_a_node_with_too_many_sources_has_none_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning is logged once. With a narrower subscription, the best is bound."""
    limits = {"limits": {"sources": 3}}
    with backbone(tmp_path, "north", "south", **SETTINGS, **limits) as nodes:
        for number in range(4):
            nodes["south"].source(f"b{number}", attributes=NOISE, x=1.0 + number, y=0.0)
        nodes["south"].source("lamp", attributes={"context": "light"}, x=1.0, y=0.0)
        nodes["north"].source("far", attributes=NOISE, x=50.0, y=0.0)
        ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
        ann.subscribe(NEAREST, id="q")
        until(lambda: "ROAMCAST_LIMITS__SOURCES" in caplog.text, "north to say that there are too many")
        assert [binding.source for binding in ann.bindings("q")] == ["far"]
        ann.unsubscribe("q")
        ann.subscribe("Select Where &context = light and &location in nearest", id="p")
        bound(ann, "p", "lamp@south")
        assert caplog.text.count("ROAMCAST_LIMITS__SOURCES") == 1


def test_any_node_knows_the_nearest_node(tmp_path: Path) -> None:
    """Of those with a position; itself if there is none."""
    with running_node(tmp_path / "alone", **SETTINGS) as alone:
        assert alone.source("s").nearest(5.0, 5.0) == alone.url
    with running_node(tmp_path / "north", domain="north", at=(0.0, 10.0), **SETTINGS) as north:
        more: dict[str, Any] = {"join": north.url, "invitation": invitation(north, "south"), "at": (0.0, -10.0)}
        with running_node(tmp_path / "south", domain="south", **more, **SETTINGS) as south:
            for node in (north, south):
                client = node.source("s")
                until(lambda client=client: client.nearest(3.0, -1.0) == south.url, "the nearest to be known")
                assert client.nearest(3.0, 1.0) == north.url


def test_a_region_demands_only_sources_that_can_be_in_it(nodes: dict[str, RunningNode]) -> None:
    """At all nodes; also when they move, and while their position is not known."""
    sources = {
        "at home": nodes["north"].source("home", attributes=NOISE, x=3.0, y=3.0),
        "abroad": nodes["south"].source("abroad", attributes=NOISE, x=3.0, y=3.0),
        "far": nodes["south"].source("far", attributes=NOISE, x=500.0, y=3.0),
        "unknown": nodes["south"].source("unknown", attributes=NOISE),
        "other": nodes["south"].source("other", attributes={"context": "light"}, x=3.0, y=3.0),
    }

    def until_demanded(*names: str) -> None:
        by_name = {name: nodes["north" if name == "at home" else "south"] for name in sources}
        until(
            lambda: {name for name, node in by_name.items() if wanted(node, sources[name])} == set(names),
            f"demand of {names}",
        )

    until_demanded()
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe("Select all() Where &context = noise and &location in box(0, 0, 5, 5)", id="q")
    until_demanded("at home", "abroad", "unknown")
    sources["far"].move(4.0, 4.0)
    sources["abroad"].move(500.0, 4.0)
    until_demanded("at home", "far", "unknown")
    ann.unsubscribe("q")
    until_demanded()


def test_a_source_is_notified_of_its_demand(nodes: dict[str, RunningNode]) -> None:
    """By its stream or a callback. It is demanded while the node is away, and just after its registration."""
    near = nodes["south"].source("near", attributes=NOISE, x=1.0, y=0.0)
    demands: list[bool] = []
    near.on_demand(demands.append)
    until(lambda: demands[-1:] == [False], "the source to be idle")
    ann = nodes["north"].subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="q")
    until(lambda: demands[-1:] == [True], "the source to be demanded")
    ann.unsubscribe("q")
    until(lambda: demands[-1:] == [False], "the source to be idle again")
    nodes["south"].stop()
    until(lambda: demands[-1:] == [True], "the source to be demanded, as its node cannot be reached")
    assert all(before != after for before, after in pairwise(demands))


def test_bindings_to_a_dead_node_end_until_it_is_back(tmp_path: Path) -> None:
    """The next nearest is bound within the limit. A restart of the subscriber's own node keeps bindings."""
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
            until(
                lambda: all(binding.unbound_at for binding in ann.bindings("q")[1:]),
                "south to confirm, which ends the other bindings",
            )
            before = ann.bindings("q")
            nodes["north"].stop()
            with running_node(tmp_path / "north", domain="north", **SETTINGS) as north:
                until(lambda: knows(north, "south"), "north to know south")
                back = Client(north.url, ann.token)
                assert sources_of(back, "q") == ("near@south",)
                assert back.bindings("q") == before
                back.close()
