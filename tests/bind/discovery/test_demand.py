"""Which sources are to send, by bindings here and elsewhere and by what the match plan could admit."""

from __future__ import annotations

import random

import pytest
from backbones import Registry

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.demand import Demand
from roamcast.bind.discovery.messages import Ask, Heard, Interest, News, Request
from roamcast.bind.lcesm.messages import Unwanted, Wanted
from roamcast.model import Position

NOISE, LIGHT, ANY = (Request("match", text) for text in ("&context = noise", "&context = light", ""))
IDS = "abcd"


def put(registry: Registry, id: str, context: str) -> None:
    registry.sources[id] = News(id, {"context": context}, Position(id, 0, 0, 1))


@pytest.mark.parametrize("seed", range(20))
def test_equals_looking_at_everything(seed: int) -> None:
    """Whatever is bound, asked for and changed, and by whom: only what was concerned was looked at again."""
    rng = random.Random(seed)
    registry = Registry()
    backbone = Backbone("here", 1, registry, 50)
    demand = Demand(backbone, registry)
    bound: set[str] = set()
    asked: set[Request] = set()
    elsewhere = {"east": Interest(), "west": Interest()}
    known: dict[str, bool] = {}
    for step in range(300):
        concerned: list[str] = []
        id, request, other = rng.choice(IDS), rng.choice([NOISE, LIGHT, ANY]), rng.choice(["east", "west"])
        match rng.randrange(5):
            case 0:
                put(registry, id, rng.choice(["noise", "light", "heat"]))
                concerned.append(id)
            case 1 if id in registry.sources:
                del registry.sources[id]
                bound.discard(id)
                concerned += demand.hear([Unwanted(id, step)])
            case 2 if id in registry.sources:
                effect = Unwanted(id, step) if id in bound else Wanted(id, step)
                bound ^= {id}
                concerned += demand.hear([effect, Wanted(f"{id}@east", step)])
            case 3:
                backbone.look_for(request, -1 if request in asked else 1)
                asked ^= {request}
                concerned += IDS
            case _:
                interest = Interest(frozenset(rng.sample([NOISE, LIGHT], rng.randint(0, 2))), frozenset(id))
                elsewhere[other] = interest
                backbone.announcer.ask(Ask(other, 1, step, interest, Heard()))
                concerned += backbone.announcer.stirred
                backbone.announcer.stirred.clear()
        changed = demand.review(concerned)
        expected = {
            news.source: news.source in bound
            or any(it.admits(news.attributes or {}) for it in asked)
            or any(news.source in of.wanted for of in elsewhere.values())
            or any(it.admits(news.attributes or {}) for of in elsewhere.values() for it in of.requests)
            for news in registry
        }
        assert {news.source: demand.is_wanted(news.source) for news in registry} == expected
        before = {source: known.get(source, True) for source in expected}
        assert {source for source in changed if source in expected} == {
            source for source, is_wanted in expected.items() if is_wanted != before[source]
        }
        known = expected


def test_a_source_that_nobody_has_looked_at_is_to_send() -> None:
    """Until it is known better."""
    registry = Registry()
    demand = Demand(Backbone("here", 1, registry, 50), registry)
    put(registry, "a", "noise")
    assert demand.is_wanted("a")
    assert demand.review(["a"]) == ["a"]
    assert not demand.is_wanted("a")
