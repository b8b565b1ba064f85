"""The contract of every RegistryStore: entities, positions, sequence bounds and time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from registries import apply, entity, followed

from roamcast.bind.lcesm.messages import Bound, Unbound
from roamcast.errors import ConflictError, NotFoundError
from roamcast.model import Position
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import (
    AttributesSet,
    Binding,
    Entity,
    EntityAdded,
    EntityRemoved,
    PositionErased,
    TokenSet,
)


def test_entity_is_returned_as_added(registry: RegistryStore) -> None:
    """Kind, token hash, attributes of each type and position."""
    attributes = {"name": "Üni", "height": 2.5, "floor": 3, "indoors": True}
    whole = Entity("s", "source", "h", attributes, Position("s", 1.5, -2.0, 7))
    apply(registry, EntityAdded(whole))
    assert registry.entity("s") == whole
    assert [type(value) for value in registry.entity("s").attributes.values()] == [str, float, int, bool]


def test_existing_id_is_refused_for_either_kind(registry: RegistryStore) -> None:
    """And nothing changes."""
    apply(registry, entity("x", "source"))
    with pytest.raises(ConflictError):
        apply(registry, EntityAdded(Entity("x", "subscriber", "another hash")))
    assert registry.entity("x").kind == "source"


def test_same_id_twice_in_one_call_is_refused(registry: RegistryStore) -> None:
    """Neither is added."""
    with pytest.raises(ConflictError):
        apply(registry, entity("x"), EntityAdded(Entity("x", "source", "another hash")))
    assert registry.entities() == []


def test_existing_token_is_refused(registry: RegistryStore) -> None:
    apply(registry, entity("x"))
    with pytest.raises(ConflictError):
        apply(registry, EntityAdded(Entity("y", "source", entity("x").entity.token_hash)))
    assert [e.id for e in registry.entities()] == ["x"]


def test_unknown_entity_raises_not_found_error(registry: RegistryStore) -> None:
    """With the id and a hint."""
    with pytest.raises(NotFoundError) as caught:
        registry.entity("nobody")
    assert caught.value.where == "nobody"
    assert caught.value.hint


def test_entities_are_ordered_by_id(registry: RegistryStore) -> None:
    apply(registry, entity("b"), entity("é", "subscriber"), entity("a", "subscriber"), entity("Z"))
    assert [e.id for e in registry.entities()] == ["Z", "a", "b", "é"]


def test_attributes_are_replaced(registry: RegistryStore) -> None:
    """All of them, and nothing else."""
    apply(registry, EntityAdded(Entity("x", "source", "h", {"a": 1, "b": 2}, Position("x", 1, 2, 3))))
    apply(registry, AttributesSet("x", {"b": "new"}))
    assert registry.entity("x") == Entity("x", "source", "h", {"b": "new"}, Position("x", 1, 2, 3))


def test_removed_entity_is_not_found(registry: RegistryStore) -> None:
    """Its former kind is known."""
    apply(registry, entity("s"), entity("ann", "subscriber"))
    apply(registry, EntityRemoved("s"), EntityRemoved("ann"))
    assert registry.entities() == []
    with pytest.raises(NotFoundError):
        registry.entity("s")
    assert registry.retired(["s", "ann", "nobody"]) == {"s": "source", "ann": "subscriber"}
    assert registry.retired_subscribers() == ["ann"]


def test_id_of_a_removed_subscriber_is_never_reused(registry: RegistryStore) -> None:
    """Neither for a subscriber nor for a source."""
    apply(registry, entity("ann", "subscriber"))
    apply(registry, EntityRemoved("ann"))
    for kind in ("subscriber", "source"):
        with pytest.raises(ConflictError, match="was removed"):
            apply(registry, EntityAdded(Entity("ann", kind, "new hash")))  # type: ignore[arg-type]


def test_returning_source_keeps_its_sequence_bound(registry: RegistryStore) -> None:
    """With another token and attributes. A subscriber cannot have its id."""
    apply(registry, EntityAdded(Entity("s", "source", "old", {"a": 1}, Position("s", 1, 1, 1))))
    registry.raise_sequence_bounds({"s": 100})
    apply(registry, EntityRemoved("s"))
    with pytest.raises(NotFoundError):
        registry.raise_sequence_bounds({"s": 200})
    with pytest.raises(ConflictError):
        apply(registry, entity("s", "subscriber"))
    apply(registry, entity("s"))
    assert registry.entity("s") == entity("s").entity
    assert registry.sequence_bounds(["s"]) == {"s": 100}
    assert registry.retired(["s"]) == {}


def test_sources_of_a_gateway_have_no_token(registry: RegistryStore) -> None:
    """Any number of them. They are found, change, have numbers and are removed like others."""
    sources = [Entity(f"s{n}", "source", None, {"n": n}, gateway="g") for n in range(3)]
    apply(registry, entity("g", "gateway"), *map(EntityAdded, sources))
    assert registry.entities() == [entity("g", "gateway").entity, *sources]
    assert registry.entity("s1") == sources[1]
    registry.raise_sequence_bounds({"s1": 100})
    apply(registry, Position("s1", 1, 2, 3), AttributesSet("s1", {}))
    assert registry.entity("s1") == Entity("s1", "source", None, {}, Position("s1", 1, 2, 3), gateway="g")
    with pytest.raises(ConflictError):
        apply(registry, EntityAdded(sources[1]))
    apply(registry, EntityRemoved("s1"), EntityRemoved("g"))
    assert [each.id for each in registry.entities()] == ["s0", "s2"]
    assert registry.retired(["s0", "s1", "g"]) == {"s1": "source", "g": "gateway"}


def test_a_returning_source_may_have_another_gateway(registry: RegistryStore) -> None:
    """Or a token of its own. Its sequence bound stays."""
    apply(registry, EntityAdded(Entity("s", "source", None, gateway="g")))
    registry.raise_sequence_bounds({"s": 100})
    for returning in (Entity("s", "source", None, gateway="h"), Entity("s", "source", "t"), entity("s").entity):
        apply(registry, EntityRemoved("s"))
        apply(registry, EntityAdded(returning))
        assert registry.entity("s") == returning
    assert registry.sequence_bounds(["s"]) == {"s": 100}


def test_id_of_a_removed_gateway_can_be_a_gateway_again(registry: RegistryStore) -> None:
    """And nothing else."""
    apply(registry, entity("g", "gateway"))
    apply(registry, EntityRemoved("g"))
    for kind in ("source", "subscriber"):
        with pytest.raises(ConflictError, match="belonged to a gateway"):
            apply(registry, EntityAdded(Entity("g", kind, "new")))  # type: ignore[arg-type]
    apply(registry, EntityAdded(Entity("g", "gateway", "new")))
    assert registry.entity("g").token_hash == "new"


def test_very_many_retired_ids_are_found(registry: RegistryStore) -> None:
    """More than the parameters of one statement."""
    ids = [f"s{n}" for n in range(600)]
    apply(registry, *map(entity, ids))
    apply(registry, *map(EntityRemoved, ids[1:]))
    assert registry.retired(ids) == dict.fromkeys(ids[1:], "source")
    assert registry.retired([]) == {}


def test_positions_of_many_entities_are_set_at_once(registry: RegistryStore) -> None:
    apply(registry, entity("x"), entity("y"), Position("x", 1, 2, 10), Position("y", 3, 4, 10))
    assert registry.entity("x").position == Position("x", 1, 2, 10)
    assert registry.entity("y").position == Position("y", 3, 4, 10)


def test_last_position_in_a_call_counts(registry: RegistryStore) -> None:
    """Also at equal times."""
    apply(registry, entity("x"), Position("x", 1, 1, 10), Position("x", 2, 2, 11), Position("x", 3, 3, 11))
    assert registry.entity("x").position == Position("x", 3, 3, 11)


def test_older_position_changes_nothing(registry: RegistryStore) -> None:
    """Neither older than the stored one, nor older than an earlier one of the same call."""
    apply(registry, entity("x"), Position("x", 1, 1, 10))
    apply(registry, Position("x", 2, 2, 9))
    assert registry.entity("x").position == Position("x", 1, 1, 10)
    apply(registry, Position("x", 3, 3, 20), Position("x", 4, 4, 15))
    assert registry.entity("x").position == Position("x", 3, 3, 20)


def test_position_of_equal_time_replaces(registry: RegistryStore) -> None:
    apply(registry, entity("x"), Position("x", 1, 1, 10))
    apply(registry, Position("x", 2, 2, 10))
    assert registry.entity("x").position == Position("x", 2, 2, 10)


def test_very_many_positions_are_set(registry: RegistryStore) -> None:
    """More than the parameters of one statement."""
    ids = [f"x{i}" for i in range(600)]
    apply(registry, *map(entity, ids))
    apply(registry, *(Position(id, at, 0, 1) for at, id in enumerate(ids)))
    assert sorted(e.position.x for e in registry.entities() if e.position) == list(range(600))


def test_empty_list_of_changes_updates_only_the_time(registry: RegistryStore) -> None:
    assert apply(registry, at=7) == 0
    assert registry.latest() == 7


def test_latest_time_never_decreases(registry: RegistryStore) -> None:
    """0 at first."""
    assert registry.latest() == 0
    for at in (5, 3):
        apply(registry, at=at)
    assert registry.latest() == 5


def test_sequence_bound_starts_at_one(registry: RegistryStore) -> None:
    apply(registry, entity("x"))
    assert registry.sequence_bounds(["x"])["x"] == 1


def test_sequence_bound_only_rises(registry: RegistryStore) -> None:
    """For each source separately."""
    apply(registry, entity("x"), entity("y"))
    registry.raise_sequence_bounds({"x": 100})
    registry.raise_sequence_bounds({"x": 50})
    assert registry.sequence_bounds(["x"])["x"] == 100
    assert registry.sequence_bounds(["y"])["y"] == 1


def test_bounds_of_many_sources_are_raised_together(registry: RegistryStore) -> None:
    """And read together: more than one statement has parameters for. One that is higher stays."""
    ids = [f"s{number}" for number in range(1_200)]
    apply(registry, *map(entity, ids))
    registry.raise_sequence_bounds({"s7": 5_000})
    registry.raise_sequence_bounds({id: 1_000 + number for number, id in enumerate(ids)})
    bounds = {id: 1_000 + number for number, id in enumerate(ids)} | {"s7": 5_000}
    assert registry.sequence_bounds([*ids, "nobody"]) == bounds | {"nobody": 1}


def test_bounds_are_raised_all_or_none(registry: RegistryStore) -> None:
    apply(registry, entity("x"), entity("y"))
    with pytest.raises(NotFoundError) as caught:
        registry.raise_sequence_bounds({"x": 100, "nobody": 100, "y": 100})
    assert caught.value.where == "nobody"
    assert registry.sequence_bounds(["x", "y"]) == {"x": 1, "y": 1}


def test_only_sources_have_a_sequence_bound(registry: RegistryStore) -> None:
    """Raising it for an unknown entity or a subscriber is refused."""
    apply(registry, entity("ann", "subscriber"))
    for id in ("nobody", "ann"):
        with pytest.raises(NotFoundError):
            registry.raise_sequence_bounds({id: 5})


def test_concurrent_registrations_of_one_id_succeed_once(registry: RegistryStore) -> None:

    def add(at: int) -> bool:
        try:
            apply(registry, EntityAdded(Entity("x", "source", f"hash {at}")))
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(add, range(16))) == 1


def test_token_is_replaced(registry: RegistryStore) -> None:
    """A token of another entity is refused, and so is an unknown entity."""
    apply(registry, entity("s"), entity("t"))
    apply(registry, TokenSet("s", "new"))
    assert registry.entity("s").token_hash == "new"
    apply(registry, TokenSet("s", "new"))
    with pytest.raises(ConflictError):
        apply(registry, TokenSet("t", "new"))
    with pytest.raises(NotFoundError):
        apply(registry, TokenSet("nobody", "newer"))
    assert registry.entity("t").token_hash == "hash of t's token"


def test_erased_position_and_binding_history_are_deleted(registry: RegistryStore) -> None:
    """Of this entity only; live bindings stay, and any later position counts again."""
    apply(registry, entity("s"), entity("t"), entity("ann", "subscriber"), entity("bob", "subscriber"))
    apply(registry, Position("ann", 1, 1, 50), Position("s", 2, 2, 50), Position("bob", 3, 3, 50))
    apply(registry, followed("a"), followed("b", "bob"))
    apply(registry, Bound("a", "s", 1), Unbound("a", "s", 2), Bound("a", "t", 2))
    apply(registry, Bound("b", "s", 1), Unbound("b", "s", 2), Bound("b", "t", 2), Unbound("b", "t", 3))
    apply(registry, PositionErased("ann"))
    assert registry.entity("ann").position is None
    assert registry.bindings("a", 10) == [Binding("a", "t", 2, None)]
    assert len(registry.bindings("b", 10)) == 2
    apply(registry, PositionErased("s"))
    assert registry.bindings("b", 10) == [Binding("b", "t", 2, 3)]
    assert registry.entity("bob").position == Position("bob", 3, 3, 50)
    apply(registry, Position("ann", 4, 4, 10))
    assert registry.entity("ann").position == Position("ann", 4, 4, 10)
    with pytest.raises(NotFoundError):
        apply(registry, PositionErased("nobody"))


def test_incarnations_only_rise(registry: RegistryStore) -> None:
    """Also when the clock goes back."""
    lives = [registry.new_incarnation(at) for at in (100, 5, 5, 200)]
    assert lives == [100, 101, 102, 200]
