"""Requests of gateways: groups of sources, failures, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from control_writers import NEAREST, SECONDS, World, world

from roamcast.errors import AuthenticationError, ConflictError, StorageError
from roamcast.model import Position
from roamcast.node.callers import Caller
from roamcast.store.registry.values import Entity

G = Caller("g", "gateway")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as node:
        node.register("g", "gateway")
        yield node


def owned(id: str, gateway: str = "g", x: float | None = None) -> Entity:
    return Entity(id, "source", None, {}, None if x is None else Position(id, x, 0, 1), gateway)


def test_sources_are_bound_like_others(node: World) -> None:
    """Those of one request together: a subscription is bound to the best of them, not to the first."""
    node.subscriber("ann", (0, 0))
    node.subscribe("q", "ann", NEAREST)
    sources = [owned("far", x=50), owned("near", x=1), owned("middle", x=10)]
    assert node.gateways.register_sources(G, sources).result(SECONDS) == [True] * 3
    assert node.sources("q") == ("near",)
    assert node.control_records() == [("initial", "near", "q")]
    assert node.gateways.remove_sources(G, ["near", "far"]).result(SECONDS) == ["near", "far"]
    assert node.sources("q") == ("middle",)
    assert sorted(node.control.entities.sources_of("g")) == ["middle"]


def test_a_refused_source_changes_nothing(node: World) -> None:
    node.source("alone")
    (new, refused) = node.gateways.register_sources(G, [owned("a"), owned("alone")]).result(SECONDS)
    assert new is True
    assert isinstance(refused, ConflictError)
    with pytest.raises(ConflictError):
        node.gateways.register_sources(G, [owned("b"), owned("alone")], all_or_none=True).result(SECONDS)
    assert [(e.id, e.gateway) for e in node.registry.entities()] == [("a", "g"), ("alone", None), ("g", None)]


def test_sources_of_an_unknown_gateway_are_refused(node: World) -> None:
    with pytest.raises(AuthenticationError):
        node.gateways.register_sources(Caller("nobody", "gateway"), [owned("a", "nobody")]).result(SECONDS)


def test_requests_of_a_group_see_each_other(node: World) -> None:
    """A gateway is not removed while a source is being added, and can be once its last one is being removed."""
    adding = [node.gateways.register_sources(G, [owned("a")]), node.gateways.register_sources(G, [owned("a")])]
    assert [each.result(SECONDS) for each in adding] == [[True], [False]]
    removing = [node.control.remove("g"), node.gateways.remove_sources(G, ["a", "a", "b"]), node.control.remove("g")]
    assert isinstance(removing[0].exception(SECONDS), ConflictError)
    assert [each.result(SECONDS) for each in removing[1:]] == [["a"], []]
    assert node.registry.entities() == []


def test_only_own_sources_are_removed(node: World) -> None:
    node.register("h", "gateway")
    node.source("alone")
    node.gateways.register_sources(Caller("h", "gateway"), [owned("theirs", "h")]).result(SECONDS)
    assert node.gateways.remove_sources(G, ["theirs", "alone", "h", "g"]).result(SECONDS) == []
    assert len(node.registry.entities()) == 4


def test_a_failure_of_the_registry_registers_nothing(node: World) -> None:
    """And what the binder knew of the sources is forgotten."""
    node.subscriber("ann", (0, 0))
    node.subscribe("q", "ann", NEAREST)
    node.registry.refusals = 1
    with pytest.raises(StorageError):
        node.gateways.register_sources(G, [owned("a", x=1)]).result(SECONDS)
    assert node.control.entities.sources_of("g") == []
    assert node.sources("q") == ()
    assert node.gateways.register_sources(G, [owned("a", x=1)]).result(SECONDS) == [True]
    assert node.sources("q") == ("a",)


def test_gateways_survive_a_restart(node: World) -> None:
    node.gateways.register_sources(G, [owned("a", x=1)]).result(SECONDS)
    node.control.set_attributes("g", {"floor": 1}).result(SECONDS)
    node.restart()
    assert node.control.entities.sources_of("g") == ["a"]
    assert node.control.entities.get("g").attributes == {"floor": 1}
    with pytest.raises(ConflictError, match="belongs to gateway g"):
        node.control.set_token("a", "new").result(SECONDS)
