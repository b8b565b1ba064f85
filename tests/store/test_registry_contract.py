"""What every RegistryStore promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from roamcast.errors import ConflictError, NotFoundError
from roamcast.journal.records import EVENT, REMOVAL, SUBSCRIPTION, Record
from roamcast.model import Box, Position, Subscription
from roamcast.store.port import Entity, EntityKind, RegistryStore


def entity(id: str, kind: EntityKind = "source") -> Entity:
    return Entity(id, kind, token_hash=f"hash of {id}'s token")


def added(id: str) -> tuple[Subscription, Record]:
    return Subscription(id, "ann"), Record(SUBSCRIPTION, entity="ann", id=id, time=5, body='{"box": null}')


def removal(id: str) -> Record:
    return Record(REMOVAL, entity="ann", id=id, time=6)


def test_an_entity_comes_back_as_it_was_added(registry: RegistryStore) -> None:
    """Kind, token hash, attributes of each type and position are kept."""
    whole = Entity(
        "s", "source", "h", {"name": "Üni", "height": 2.5, "floor": 3, "indoors": True}, Position("s", 1.5, -2.0, 7)
    )
    registry.add_entity(whole)
    assert registry.entity("s") == whole
    assert [type(value) for value in registry.entity("s").attributes.values()] == [str, float, int, bool]


def test_an_id_is_taken_by_either_kind(registry: RegistryStore) -> None:
    """A second entity of the same id is refused and changes nothing."""
    registry.add_entity(entity("x", "source"))
    with pytest.raises(ConflictError):
        registry.add_entity(Entity("x", "subscriber", "another hash"))
    assert registry.entity("x").kind == "source"
    assert registry.entity_by_token("another hash") is None


def test_a_token_belongs_to_one_entity(registry: RegistryStore) -> None:
    """A second entity of the same token is refused."""
    registry.add_entity(entity("x"))
    with pytest.raises(ConflictError):
        registry.add_entity(Entity("y", "source", entity("x").token_hash))
    assert [e.id for e in registry.entities()] == ["x"]


def test_an_unknown_entity_is_not_found(registry: RegistryStore) -> None:
    """The error names the id and says what to do."""
    with pytest.raises(NotFoundError) as caught:
        registry.entity("nobody")
    assert caught.value.where == "nobody"
    assert caught.value.hint


def test_an_entity_is_found_by_its_token(registry: RegistryStore) -> None:
    """The hash of a token leads to its owner, and an unknown one to nobody."""
    registry.add_entity(entity("x"))
    registry.add_entity(entity("y"))
    assert registry.entity_by_token(entity("y").token_hash) == entity("y")
    assert registry.entity_by_token("unknown") is None


def test_entities_are_listed_by_id(registry: RegistryStore) -> None:
    """All of them or one kind, in the order of their ids."""
    for id, kind in (("b", "source"), ("é", "subscriber"), ("a", "subscriber"), ("Z", "source")):
        registry.add_entity(entity(id, kind))  # type: ignore[arg-type]
    assert [e.id for e in registry.entities()] == ["Z", "a", "b", "é"]
    assert [e.id for e in registry.entities("subscriber")] == ["a", "é"]


def test_positions_are_set_for_many_at_once(registry: RegistryStore) -> None:
    """Each entity has the position given for it."""
    for id in "xy":
        registry.add_entity(entity(id))
    registry.set_positions([Position("x", 1, 2, 10), Position("y", 3, 4, 10)])
    assert registry.entity("x").position == Position("x", 1, 2, 10)
    assert registry.entity_by_token(entity("y").token_hash).position == Position("y", 3, 4, 10)  # type: ignore[union-attr]


def test_the_last_position_in_the_sequence_counts(registry: RegistryStore) -> None:
    """Of several positions of one entity the last stays, also at equal times."""
    registry.add_entity(entity("x"))
    registry.set_positions([Position("x", 1, 1, 10), Position("x", 2, 2, 11), Position("x", 3, 3, 11)])
    assert registry.entity("x").position == Position("x", 3, 3, 11)


def test_an_older_position_changes_nothing(registry: RegistryStore) -> None:
    """Neither one older than what is stored, nor one older than what came before it in the same call."""
    registry.add_entity(entity("x"))
    registry.set_positions([Position("x", 1, 1, 10)])
    registry.set_positions([Position("x", 2, 2, 9)])
    assert registry.entity("x").position == Position("x", 1, 1, 10)
    registry.set_positions([Position("x", 3, 3, 20), Position("x", 4, 4, 15)])
    assert registry.entity("x").position == Position("x", 3, 3, 20)


def test_a_position_of_equal_time_replaces(registry: RegistryStore) -> None:
    """Only an older one changes nothing."""
    registry.add_entity(entity("x"))
    registry.set_positions([Position("x", 1, 1, 10)])
    registry.set_positions([Position("x", 2, 2, 10)])
    assert registry.entity("x").position == Position("x", 2, 2, 10)


def test_positions_of_an_unknown_entity_refuse_all(registry: RegistryStore) -> None:
    """One unknown entity and no position is set at all."""
    registry.add_entity(entity("x"))
    with pytest.raises(NotFoundError) as caught:
        registry.set_positions([Position("x", 1, 1, 10), Position("nobody", 1, 1, 10)])
    assert caught.value.where == "nobody"
    assert registry.entity("x").position is None


def test_no_positions_are_fine(registry: RegistryStore) -> None:
    """Setting none changes nothing."""
    registry.add_entity(entity("x"))
    registry.set_positions([])
    assert registry.entity("x").position is None


def test_very_many_positions_are_set(registry: RegistryStore) -> None:
    """More entities than a statement has room for."""
    ids = [f"x{i}" for i in range(600)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(registry.add_entity, map(entity, ids)))
    registry.set_positions([Position(id, at, 0, 1) for at, id in enumerate(ids)])
    assert sorted(e.position.x for e in registry.entities() if e.position) == list(range(600))


def test_the_sequence_bound_starts_with_one(registry: RegistryStore) -> None:
    """A source that has used no number may use any from 1 on."""
    registry.add_entity(entity("x"))
    assert registry.sequence_bound("x") == 1


def test_the_sequence_bound_only_rises(registry: RegistryStore) -> None:
    """A lower bound changes nothing, and each source has its own."""
    for id in "xy":
        registry.add_entity(entity(id))
    registry.raise_sequence_bound("x", 100)
    registry.raise_sequence_bound("x", 50)
    assert registry.sequence_bound("x") == 100
    assert registry.sequence_bound("y") == 1


def test_only_a_source_has_a_sequence_bound(registry: RegistryStore) -> None:
    """Raising it for somebody unknown, or for a subscriber, is refused."""
    registry.add_entity(entity("ann", "subscriber"))
    for id in ("nobody", "ann"):
        with pytest.raises(NotFoundError):
            registry.raise_sequence_bound(id, 5)


@pytest.mark.parametrize("box", [None, Box(-1.5, 0.0, 2.25, 1e9), Box(170.0, -1.0, -170.0, 1.0)])
@pytest.mark.parametrize("terms", [(), ("fire", "Rauch", "火")])
def test_a_subscription_comes_back_as_it_was_added(
    registry: RegistryStore, box: Box | None, terms: tuple[str, ...]
) -> None:
    """Box, or none, and terms in their order are kept."""
    subscription = Subscription("q", "ann", box, terms)
    registry.add_subscription(subscription, added("q")[1])
    assert registry.subscription("q") == subscription


def test_a_subscription_id_is_taken_once(registry: RegistryStore) -> None:
    """A second one is refused, and its record is not kept."""
    registry.add_subscription(*added("q"))
    with pytest.raises(ConflictError):
        registry.add_subscription(*added("q"))
    assert len(registry.unjournalled()) == 1


def test_a_removed_subscription_is_gone(registry: RegistryStore) -> None:
    """It is not found, and its id may be used again."""
    registry.add_subscription(*added("q"))
    registry.remove_subscription("q", removal("q"))
    with pytest.raises(NotFoundError):
        registry.subscription("q")
    registry.add_subscription(*added("q"))
    assert registry.subscription("q") == added("q")[0]


def test_removing_an_unknown_subscription_is_refused(registry: RegistryStore) -> None:
    """And its record is not kept."""
    with pytest.raises(NotFoundError):
        registry.remove_subscription("q", removal("q"))
    assert registry.unjournalled() == []


def test_subscriptions_are_listed_by_id(registry: RegistryStore) -> None:
    """All of them or one subscriber's, in the order of their ids."""
    for id, subscriber in (("b", "ann"), ("c", "bob"), ("a", "ann")):
        registry.add_subscription(Subscription(id, subscriber), Record(SUBSCRIPTION, subscriber, id=id))
    assert [s.id for s in registry.subscriptions()] == ["a", "b", "c"]
    assert [s.id for s in registry.subscriptions("ann")] == ["a", "b"]
    assert registry.subscriptions("nobody") == []


def test_control_records_wait_in_the_order_of_the_changes(registry: RegistryStore) -> None:
    """Each change leaves its record, as it was given, behind those before it."""
    registry.add_subscription(*added("q"))
    registry.add_subscription(*added("p"))
    registry.remove_subscription("q", removal("q"))
    tickets, records = zip(*registry.unjournalled(), strict=True)
    assert records == (added("q")[1], added("p")[1], removal("q"))
    assert list(tickets) == sorted(set(tickets))


def test_a_record_with_every_field_comes_back(registry: RegistryStore) -> None:
    """Nothing of a record is lost while it waits."""
    record = Record(EVENT, "s", 2**62, "s:1", 1_700_000_000_000_000, 1.5, -0.25, ("a", "é"), {"level": 0.1}, "{}")
    registry.add_subscription(added("q")[0], record)
    assert [r for _, r in registry.unjournalled()] == [record]


def test_journalled_records_are_forgotten(registry: RegistryStore) -> None:
    """Only those named; naming one again, or none, is harmless."""
    registry.add_subscription(*added("p"))
    registry.add_subscription(*added("q"))
    (first, _), second = registry.unjournalled()
    registry.journalled([first])
    registry.journalled([first])
    registry.journalled([])
    assert registry.unjournalled() == [second]


def test_a_ticket_is_never_given_twice(registry: RegistryStore) -> None:
    """A late word about an old ticket cannot make a new record forgotten."""
    registry.add_subscription(*added("p"))
    ((old, _),) = registry.unjournalled()
    registry.journalled([old])
    registry.add_subscription(*added("q"))
    ((new, _),) = registry.unjournalled()
    assert new > old


def test_the_pipeline_told_last_is_remembered(registry: RegistryStore) -> None:
    """None at first, then the one set last."""
    assert registry.pipeline() is None
    registry.set_pipeline("one")
    registry.set_pipeline("two")
    assert registry.pipeline() == "two"


def test_threads_cannot_take_one_id_twice(registry: RegistryStore) -> None:
    """Of many that register the same id at once exactly one succeeds."""

    def add(at: int) -> bool:
        try:
            registry.add_entity(Entity("x", "source", f"hash {at}"))
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(add, range(16))) == 1
