"""Which sources are demanded: by bindings here and at peers, and by requests of plan match."""

from __future__ import annotations

import random

import pytest
from backbones import Registry, may_be_in, source_request

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.cells import Cell
from roamcast.bind.discovery.demand import SourceDemand
from roamcast.bind.discovery.messages import (
    AnnouncementCursor,
    DiscoveryInterest,
    DiscoveryRequest,
    SourceAnnouncement,
    SourceRequest,
)
from roamcast.bind.lcesm.messages import SourceDemanded, SourceIdle
from roamcast.model import Position

NOISE, LIGHT, ANY = (source_request("match", text) for text in ("&context = noise", "&context = light", ""))
IDS = "abcd"


CELLS = (None, Cell(2, 0, 0), Cell(2, 1, 1), Cell(4, -1, 0))


def put(registry: Registry, id: str, context: str, x: float | None = 0) -> None:
    at = None if x is None else Position(id, x, 3, 1)
    registry.sources[id] = SourceAnnouncement(id, {"context": context}, at)


def admits(request: SourceRequest, source: SourceAnnouncement) -> bool:
    is_there = request.cell is None or may_be_in(source, request.cell)
    return is_there and request.accepts(source.attributes or {})


@pytest.mark.parametrize("seed", range(20))
def test_reviewing_concerned_sources_equals_reviewing_all(seed: int) -> None:
    """Random bindings, requests and changes, here and at peers; only the sources reported as concerned are reviewed."""
    rng = random.Random(seed)
    registry = Registry()
    backbone = Backbone("here", 1, registry, 50)
    demand = SourceDemand(backbone, registry)
    bound: set[str] = set()
    requests: set[SourceRequest] = set()
    peer_interests = {"east": DiscoveryInterest(), "west": DiscoveryInterest()}
    known: dict[str, bool] = {}
    for step in range(300):
        concerned: list[str] = []
        id, other = rng.choice(IDS), rng.choice(["east", "west"])
        request = rng.choice([NOISE, LIGHT, ANY])._replace(cell=rng.choice(CELLS))
        match rng.randrange(5):
            case 0:
                put(registry, id, rng.choice(["noise", "light", "heat"]), rng.choice([None, -20, 0, 5, 13]))
                concerned.append(id)
            case 1 if id in registry.sources:
                del registry.sources[id]
                bound.discard(id)
                concerned += demand.apply([SourceIdle(id, step)])
            case 2 if id in registry.sources:
                effect = SourceIdle(id, step) if id in bound else SourceDemanded(id, step)
                bound ^= {id}
                concerned += demand.apply([effect, SourceDemanded(f"{id}@east", step)])
            case 3:
                backbone.add_requests(request, -1 if request in requests else 1)
                requests ^= {request}
            case _:
                wanted = [it._replace(cell=cell) for it in (NOISE, LIGHT) for cell in CELLS]
                interest = DiscoveryInterest(frozenset(rng.sample(wanted, rng.randint(0, 3))), frozenset(id))
                peer_interests[other] = interest
                backbone.announcer.respond(DiscoveryRequest(other, 1, step, interest, AnnouncementCursor()))
        changed = demand.review([*concerned, *demand.take_concerned()])
        expected = {
            source.source: source.source in bound
            or any(admits(it, source) for it in requests)
            or any(source.source in of.demanded for of in peer_interests.values())
            or any(admits(it, source) for of in peer_interests.values() for it in of.requests)
            for source in registry
        }
        assert {source.source: demand.is_demanded(source.source) for source in registry} == expected
        before = {source: known.get(source, True) for source in expected}
        assert {source for source in changed if source in expected} == {
            source for source, is_demanded in expected.items() if is_demanded != before[source]
        }
        known = expected


def test_a_source_is_demanded_until_it_is_reviewed() -> None:
    """A new source may send before demand is known."""
    registry = Registry()
    demand = SourceDemand(Backbone("here", 1, registry, 50), registry)
    put(registry, "a", "noise")
    assert demand.is_demanded("a")
    assert demand.review(["a"]) == ["a"]
    assert not demand.is_demanded("a")
