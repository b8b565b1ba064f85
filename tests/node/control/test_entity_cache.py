"""The registered entities in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roamcast.errors import NotFoundError
from roamcast.model import Position
from roamcast.node.control.entity_cache import EntityCache
from roamcast.store.registry.values import Entity


def test_entities_are_found_by_id_and_token() -> None:
    """A replaced token finds nothing."""
    entities = EntityCache([Entity("a", "source", "old", {"x": 1})])
    entities.put(Entity("a", "source", "new", {}, Position("a", 1, 2, 3)))
    assert entities.by_token("old") is None
    assert entities.by_token("new") == entities.get("a") == Entity("a", "source", "new", {}, Position("a", 1, 2, 3))
    assert entities.attributes_json("a") is None
    entities.remove("a")
    assert (entities.by_token("new"), entities.find("a"), len(entities)) == (None, None, 0)
    for read in (entities.get, entities.attributes_json):
        with pytest.raises(NotFoundError):
            read("a")


def test_the_sources_of_a_gateway_are_known() -> None:
    """Also after one has changed, moved to another gateway, or was removed."""
    source = Entity("a", "source", None, gateway="g")
    entities = EntityCache([Entity("g", "gateway", "t"), source, replace(source, id="b"), Entity("c", "source", "c")])
    entities.put(replace(source, attributes={"x": 1}))
    assert sorted(entities.sources_of("g")) == ["a", "b"]
    entities.put(replace(source, gateway="h"))
    entities.remove("b")
    assert (entities.sources_of("g"), entities.sources_of("h")) == ([], ["a"])
    entities.reload([source])
    assert (entities.sources_of("g"), entities.sources_of("h")) == (["a"], [])
