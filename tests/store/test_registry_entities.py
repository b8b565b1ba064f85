"""What every RegistryStore promises of entities, their positions and numbers, and of time."""

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


def test_an_entity_comes_back_as_it_was_added(registry: RegistryStore) -> None:
    """Kind, token hash, attributes of each type and position are kept."""
    attributes = {"name": "Üni", "height": 2.5, "floor": 3, "indoors": True}
    whole = Entity("s", "source", "h", attributes, Position("s", 1.5, -2.0, 7))
    apply(registry, EntityAdded(whole))
    assert registry.entity("s") == whole
    assert [type(value) for value in registry.entity("s").attributes.values()] == [str, float, int, bool]


def test_an_id_is_taken_by_either_kind(registry: RegistryStore) -> None:
    """A second entity of the same id is refused and changes nothing."""
    apply(registry, entity("x", "source"))
    with pytest.raises(ConflictError):
        apply(registry, EntityAdded(Entity("x", "subscriber", "another hash")))
    assert registry.entity("x").kind == "source"


def test_an_id_is_taken_once_in_one_call(registry: RegistryStore) -> None:
    """Two of the same id at once, and neither is there."""
    with pytest.raises(ConflictError):
        apply(registry, entity("x"), EntityAdded(Entity("x", "source", "another hash")))
    assert registry.entities() == []


def test_a_token_belongs_to_one_entity(registry: RegistryStore) -> None:
    """A second entity of the same token is refused."""
    apply(registry, entity("x"))
    with pytest.raises(ConflictError):
        apply(registry, EntityAdded(Entity("y", "source", entity("x").entity.token_hash)))
    assert [e.id for e in registry.entities()] == ["x"]


def test_an_unknown_entity_is_not_found(registry: RegistryStore) -> None:
    """The error names the id and says what to do."""
    with pytest.raises(NotFoundError) as caught:
        registry.entity("nobody")
    assert caught.value.where == "nobody"
    assert caught.value.hint


def test_entities_are_listed_by_id(registry: RegistryStore) -> None:
    """In the order of their ids."""
    apply(registry, entity("b"), entity("é", "subscriber"), entity("a", "subscriber"), entity("Z"))
    assert [e.id for e in registry.entities()] == ["Z", "a", "b", "é"]


def test_attributes_are_replaced(registry: RegistryStore) -> None:
    """All of them, and nothing else."""
    apply(registry, EntityAdded(Entity("x", "source", "h", {"a": 1, "b": 2}, Position("x", 1, 2, 3))))
    apply(registry, AttributesSet("x", {"b": "new"}))
    assert registry.entity("x") == Entity("x", "source", "h", {"b": "new"}, Position("x", 1, 2, 3))


def test_a_removed_entity_is_gone(registry: RegistryStore) -> None:
    """It is not found nor listed, and what it was is known."""
    apply(registry, entity("s"), entity("ann", "subscriber"))
    apply(registry, EntityRemoved("s"), EntityRemoved("ann"))
    assert registry.entities() == []
    with pytest.raises(NotFoundError):
        registry.entity("s")
    assert [registry.retired(id) for id in ("s", "ann", "nobody")] == ["source", "subscriber", None]
    assert registry.retired_subscribers() == ["ann"]


def test_the_id_of_a_removed_subscriber_is_never_given_again(registry: RegistryStore) -> None:
    """Neither to a subscriber nor to a source."""
    apply(registry, entity("ann", "subscriber"))
    apply(registry, EntityRemoved("ann"))
    for kind in ("subscriber", "source"):
        with pytest.raises(ConflictError, match="was removed"):
            apply(registry, EntityAdded(Entity("ann", kind, "new hash")))  # type: ignore[arg-type]


def test_a_source_that_comes_back_goes_on_with_its_numbers(registry: RegistryStore) -> None:
    """With another token and attributes, and above its old bound; a subscriber cannot have its id."""
    apply(registry, EntityAdded(Entity("s", "source", "old", {"a": 1}, Position("s", 1, 1, 1))))
    registry.raise_sequence_bound("s", 100)
    apply(registry, EntityRemoved("s"))
    with pytest.raises(NotFoundError):
        registry.raise_sequence_bound("s", 200)
    with pytest.raises(ConflictError):
        apply(registry, entity("s", "subscriber"))
    apply(registry, entity("s"))
    assert registry.entity("s") == entity("s").entity
    assert registry.sequence_bound("s") == 100
    assert registry.retired("s") is None


def test_positions_are_set_for_many_at_once(registry: RegistryStore) -> None:
    """Each entity has the position given for it."""
    apply(registry, entity("x"), entity("y"), Position("x", 1, 2, 10), Position("y", 3, 4, 10))
    assert registry.entity("x").position == Position("x", 1, 2, 10)
    assert registry.entity("y").position == Position("y", 3, 4, 10)


def test_the_last_position_in_the_sequence_counts(registry: RegistryStore) -> None:
    """Of several positions of one entity the last stays, also at equal times."""
    apply(registry, entity("x"), Position("x", 1, 1, 10), Position("x", 2, 2, 11), Position("x", 3, 3, 11))
    assert registry.entity("x").position == Position("x", 3, 3, 11)


def test_an_older_position_changes_nothing(registry: RegistryStore) -> None:
    """Neither one older than what is stored, nor one older than what came before it in the same call."""
    apply(registry, entity("x"), Position("x", 1, 1, 10))
    apply(registry, Position("x", 2, 2, 9))
    assert registry.entity("x").position == Position("x", 1, 1, 10)
    apply(registry, Position("x", 3, 3, 20), Position("x", 4, 4, 15))
    assert registry.entity("x").position == Position("x", 3, 3, 20)


def test_a_position_of_equal_time_replaces(registry: RegistryStore) -> None:
    """Only an older one changes nothing."""
    apply(registry, entity("x"), Position("x", 1, 1, 10))
    apply(registry, Position("x", 2, 2, 10))
    assert registry.entity("x").position == Position("x", 2, 2, 10)


def test_very_many_positions_are_set(registry: RegistryStore) -> None:
    """More entities than a statement has room for."""
    ids = [f"x{i}" for i in range(600)]
    apply(registry, *map(entity, ids))
    apply(registry, *(Position(id, at, 0, 1) for at, id in enumerate(ids)))
    assert sorted(e.position.x for e in registry.entities() if e.position) == list(range(600))


def test_no_changes_are_fine(registry: RegistryStore) -> None:
    """Only the time goes on."""
    assert apply(registry, at=7) == 0
    assert registry.latest() == 7


def test_the_latest_time_does_not_go_back(registry: RegistryStore) -> None:
    """0 at first, then the latest given."""
    assert registry.latest() == 0
    for at in (5, 3):
        apply(registry, at=at)
    assert registry.latest() == 5


def test_the_sequence_bound_starts_with_one(registry: RegistryStore) -> None:
    """A source that has used no number may use any from 1 on."""
    apply(registry, entity("x"))
    assert registry.sequence_bound("x") == 1


def test_the_sequence_bound_only_rises(registry: RegistryStore) -> None:
    """A lower bound changes nothing, and each source has its own."""
    apply(registry, entity("x"), entity("y"))
    registry.raise_sequence_bound("x", 100)
    registry.raise_sequence_bound("x", 50)
    assert registry.sequence_bound("x") == 100
    assert registry.sequence_bound("y") == 1


def test_only_a_source_has_a_sequence_bound(registry: RegistryStore) -> None:
    """Raising it for somebody unknown, or for a subscriber, is refused."""
    apply(registry, entity("ann", "subscriber"))
    for id in ("nobody", "ann"):
        with pytest.raises(NotFoundError):
            registry.raise_sequence_bound(id, 5)


def test_threads_cannot_take_one_id_twice(registry: RegistryStore) -> None:
    """Of many that register the same id at once exactly one succeeds."""

    def add(at: int) -> bool:
        try:
            apply(registry, EntityAdded(Entity("x", "source", f"hash {at}")))
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(add, range(16))) == 1


def test_a_token_is_replaced(registry: RegistryStore) -> None:
    """Everything else stays; one that somebody else has is refused, and so is one for nobody."""
    apply(registry, entity("s"), entity("t"))
    apply(registry, TokenSet("s", "new"))
    assert registry.entity("s").token_hash == "new"
    apply(registry, TokenSet("s", "new"))
    with pytest.raises(ConflictError):
        apply(registry, TokenSet("t", "new"))
    with pytest.raises(NotFoundError):
        apply(registry, TokenSet("nobody", "newer"))
    assert registry.entity("t").token_hash == "hash of t's token"


def test_an_erased_position_is_gone_with_the_bindings_of_the_past(registry: RegistryStore) -> None:
    """Of the entity alone; what is bound now stays, and any later position counts again."""
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


def test_lives_of_a_node_are_numbered_upwards(registry: RegistryStore) -> None:
    """Also when the clock goes back in between."""
    lives = [registry.new_incarnation(at) for at in (100, 5, 5, 200)]
    assert lives == [100, 101, 102, 200]
