"""What every RegistryStore promises."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from roamcast.bind.messages import Bound, StateChanged, Unbound
from roamcast.bind.states import State
from roamcast.errors import ConflictError, NotFoundError
from roamcast.journal.records import EVENT, REMOVAL, SUBSCRIPTION, Record
from roamcast.model import Position, Standing, Subscription
from roamcast.store.port import RegistryStore
from roamcast.store.values import (
    AttributesSet,
    Binding,
    BodySet,
    Change,
    Entity,
    EntityAdded,
    EntityKind,
    EntityRemoved,
    PositionErased,
    StandingEnded,
    SubscriptionAdded,
    SubscriptionRemoved,
    TokenSet,
)

START = Standing("start", "no source", 5)


def entity(id: str, kind: EntityKind = "source") -> EntityAdded:
    return EntityAdded(Entity(id, kind, token_hash=f"hash of {id}'s token"))


def added(id: str, subscriber: str = "ann", **fields: Any) -> SubscriptionAdded:
    return SubscriptionAdded(Subscription(id, subscriber, f"text of {id}", **fields))


def followed(id: str, subscriber: str = "ann") -> SubscriptionAdded:
    return added(id, subscriber, standing=START)


def record(id: str, kind: str = SUBSCRIPTION) -> Record:
    return Record(kind, entity="ann", id=id, time=5, body="{}")


def apply(registry: RegistryStore, *changes: Change, at: int = 1) -> int:
    return registry.apply(changes, at=at)


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
        with pytest.raises(ConflictError, match="left"):
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


def test_with_a_subscriber_go_its_subscriptions_and_bindings(registry: RegistryStore) -> None:
    """Those of others stay."""
    apply(registry, entity("ann", "subscriber"), entity("bob", "subscriber"))
    apply(registry, followed("p"), followed("q", "bob"), Bound("p", "s", 1), Bound("q", "s", 1))
    apply(registry, EntityRemoved("ann"))
    assert [s.id for s in registry.subscriptions()] == ["q"]
    assert registry.live_bindings() == [Bound("q", "s", 1)]


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


UNKNOWN: dict[str, Change] = {
    "position": Position("nobody", 1, 1, 10),
    "attributes": AttributesSet("nobody", {}),
    "removal": EntityRemoved("nobody"),
    "state": StateChanged("nobody", State.STOP, None, 1),
    "body": BodySet("nobody", "{}"),
    "standing": StandingEnded("nobody"),
    "binding": Bound("nobody", "x", 1),
    "unsubscription": SubscriptionRemoved("nobody"),
}


@pytest.mark.parametrize("change", UNKNOWN.values(), ids=UNKNOWN)
def test_a_change_of_something_unknown_refuses_all(registry: RegistryStore, change: Change) -> None:
    """One unknown id and nothing of the call is done, whatever came before it."""
    apply(registry, entity("x"), followed("q"))
    with pytest.raises(NotFoundError) as caught:
        apply(registry, record("q"), Position("x", 1, 1, 10), Bound("q", "x", 7), entity("y"), change)
    assert caught.value.where == "nobody"
    assert registry.entity("x").position is None
    assert [e.id for e in registry.entities()] == ["x"]
    assert registry.live_bindings() == []
    assert registry.unjournalled() == []


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


@pytest.mark.parametrize("body", [None, '{"box": null}'])
@pytest.mark.parametrize("places", [(), ("room A", "Küche")])
@pytest.mark.parametrize("standing", [None, START, Standing("active", None, 2**60, joined=True)])
def test_a_subscription_comes_back_as_it_was_added(
    registry: RegistryStore, body: str | None, places: tuple[str, ...], standing: Standing | None
) -> None:
    """Text, body or none, time, places and standing or none are kept."""
    subscription = Subscription("q", "ann", "Select …", body, 2**60, places, standing, is_around=body is not None)
    apply(registry, SubscriptionAdded(subscription))
    assert registry.subscription("q") == subscription


def test_a_subscription_id_is_taken_once(registry: RegistryStore) -> None:
    """A second one is refused, also in one call, and its record is not kept."""
    apply(registry, added("q"), record("q"))
    for changes in ([added("q"), record("q")], [added("p"), added("p"), record("p")]):
        with pytest.raises(ConflictError):
            apply(registry, *changes)
    assert len(registry.unjournalled()) == 1


def test_a_removed_subscription_is_gone(registry: RegistryStore) -> None:
    """It is not found, nor is its history, and its id may be used again."""
    apply(registry, followed("q"), Bound("q", "s", 1), Unbound("q", "s", 2), Bound("q", "t", 2))
    apply(registry, SubscriptionRemoved("q"))
    with pytest.raises(NotFoundError):
        registry.subscription("q")
    apply(registry, added("q"))
    assert registry.subscription("q") == added("q").subscription
    assert registry.bindings("q", 10) == registry.live_bindings() == []


def test_changes_are_made_in_their_order(registry: RegistryStore) -> None:
    """Added, removed and added again in one call is there; entities as well."""
    again = Entity("s", "source", "another hash")
    apply(registry, entity("s"), EntityRemoved("s"), EntityAdded(again))
    apply(registry, added("q", "bob"), SubscriptionRemoved("q"), added("q"))
    assert registry.entity("s") == again
    assert registry.subscription("q").subscriber == "ann"


def test_subscriptions_are_listed_by_id(registry: RegistryStore) -> None:
    """All of them or one subscriber's, in the order of their ids, a page at a time."""
    apply(registry, added("b"), added("c", "bob"), added("a"), added("d"))
    lists: dict[str, Callable[[], list[Subscription]]] = {
        "abcd": lambda: registry.subscriptions(),
        "abd": lambda: registry.subscriptions("ann"),
        "": lambda: registry.subscriptions("nobody"),
        "ab": lambda: registry.subscriptions(limit=2),
        "cd": lambda: registry.subscriptions(after="b"),
        "b": lambda: registry.subscriptions("ann", after="a", limit=1),
    }
    assert {ids: "".join(s.id for s in ask()) for ids, ask in lists.items()} == {ids: ids for ids in lists}


def test_subscriptions_are_counted(registry: RegistryStore) -> None:
    """Those of one subscriber, whether they stand or not."""
    apply(registry, added("a"), followed("b"), added("c", "bob"))
    assert [registry.subscription_count(id) for id in ("ann", "bob", "nobody")] == [2, 1, 0]


def test_those_with_a_standing_and_those_with_places_are_found(registry: RegistryStore) -> None:
    """Among any number of others, which are counted."""
    apply(registry, added("a", is_around=True), followed("d"), added("c", places=("room",), source="x"), followed("b"))
    assert [s.id for s in registry.standing()] == ["b", "d"]
    assert [s.id for s in registry.naming_places()] == ["c"]
    assert [s.id for s in registry.around_subscribers()] == ["a"]
    assert registry.always_running() == {"": 1, "x": 1}


def test_a_standing_follows_the_state(registry: RegistryStore) -> None:
    """Once it has been active, it has joined for good."""
    apply(registry, followed("q"))
    told = []
    for at, state in enumerate((State.START, State.ACTIVE, State.INACTIVE, State.STOP), start=10):
        apply(registry, StateChanged("q", state, f"why {at}", at))
        told.append(registry.subscription("q").standing)
    assert told == [
        Standing("start", "why 10", 10, joined=False),
        Standing("active", "why 11", 11, joined=True),
        Standing("inactive", "why 12", 12, joined=True),
        Standing("stop", "why 13", 13, joined=True),
    ]


def test_a_standing_ends(registry: RegistryStore) -> None:
    """The subscription simply runs from then on, and may have a standing again."""
    apply(registry, added("q"), StateChanged("q", State.STOP, "why", 7))
    assert registry.subscription("q").standing == Standing("stop", "why", 7, joined=False)
    apply(registry, StandingEnded("q"))
    assert registry.subscription("q") == added("q").subscription
    assert (registry.standing(), registry.always_running()) == ([], {"": 1})


def test_the_body_is_replaced(registry: RegistryStore) -> None:
    """And nothing else."""
    apply(registry, added("q", body="old", places=("room",)))
    apply(registry, BodySet("q", "new"))
    assert registry.subscription("q") == added("q", body="new", places=("room",)).subscription


def test_bindings_begin_and_end(registry: RegistryStore) -> None:
    """The live ones are listed, and the history of each subscription, newest first and in pages."""
    apply(registry, followed("q"), followed("p"))
    apply(registry, Bound("q", "b", 10), Bound("q", "a", 10), Bound("p", "a", 11))
    apply(registry, Unbound("q", "b", 20), Bound("q", "c", 20), Unbound("q", "c", 30), Bound("q", "b", 30))
    assert registry.live_bindings() == [Bound("p", "a", 11), Bound("q", "a", 10), Bound("q", "b", 30)]
    history = [
        Binding("q", "b", 30, None),
        Binding("q", "c", 20, 30),
        Binding("q", "a", 10, None),
        Binding("q", "b", 10, 20),
    ]
    assert registry.bindings("q", 10) == history
    assert registry.bindings("q", 2, skip=1) == history[1:3]
    assert registry.bindings("nobody", 10) == []


def test_bindings_of_some_subscriptions(registry: RegistryStore) -> None:
    """Of those asked for and no others, however many."""
    ids = [f"q{number:04}" for number in range(1200)]
    apply(registry, *map(followed, ids), *(Bound(id, "a", 1) for id in ids), Bound("q0001", "b", 2))
    apply(registry, Unbound("q0002", "a", 3))
    found = registry.live_bindings(["q0002", "q0001", "q0000", "nothing"])
    assert found == [Bound("q0000", "a", 1), Bound("q0001", "a", 1), Bound("q0001", "b", 2)]
    assert registry.live_bindings(ids) == registry.live_bindings()
    assert registry.live_bindings([]) == []


def test_ending_what_is_not_bound_changes_nothing(registry: RegistryStore) -> None:
    """No binding, no end."""
    apply(registry, followed("q"), Bound("q", "a", 1), Unbound("q", "a", 2))
    apply(registry, Unbound("q", "a", 3), Unbound("q", "b", 3))
    assert registry.bindings("q", 10) == [Binding("q", "a", 1, 2)]


def test_old_history_is_pruned(registry: RegistryStore) -> None:
    """What ended before a time, oldest first and not more than asked for; what lives stays, however old."""
    apply(registry, followed("q"), Bound("q", "old", 1))
    for at in range(10, 14):
        apply(registry, Bound("q", "a", at), Unbound("q", "a", at + 1))
    assert [registry.prune(13, 1), registry.prune(13, 10), registry.prune(13, 10)] == [1, 1, 0]
    assert [b.bound_at for b in registry.bindings("q", 10)] == [13, 12, 1]


def test_control_records_wait_in_the_order_of_the_changes(registry: RegistryStore) -> None:
    """Each as it was given, behind those before it; the last ticket is told."""
    last = [apply(registry, record("q"), added("q")), apply(registry, record("p"), record("q", REMOVAL))]
    tickets, records = zip(*registry.unjournalled(), strict=True)
    assert records == (record("q"), record("p"), record("q", REMOVAL))
    assert list(tickets) == sorted(set(tickets))
    assert last == [tickets[0], tickets[2]]
    assert registry.unjournalled(after=tickets[0], limit=1) == [(tickets[1], record("p"))]


def test_a_record_with_every_field_comes_back(registry: RegistryStore) -> None:
    """Nothing of a record is lost while it waits."""
    whole = Record(EVENT, "s", 2**62, "s:1", 1_700_000_000_000_000, 1.5, -0.25, ("a", "é"), {"level": 0.1}, "{}")
    apply(registry, whole)
    assert [r for _, r in registry.unjournalled()] == [whole]


def test_journalled_records_are_forgotten(registry: RegistryStore) -> None:
    """Up to a ticket; saying it again, or of none, is harmless."""
    apply(registry, record("p"), record("q"))
    (first, _), second = registry.unjournalled()
    for through in (first, first, 0):
        registry.journalled(through)
    assert registry.unjournalled() == [second]


def test_records_are_forgotten_with_the_next_change(registry: RegistryStore) -> None:
    """In one transaction: those up to the ticket, not the new ones."""
    ticket = apply(registry, record("p"))
    registry.apply([record("q")], at=1, journalled=ticket)
    assert [r for _, r in registry.unjournalled()] == [record("q")]


def test_a_ticket_is_never_given_twice(registry: RegistryStore) -> None:
    """A late word about an old ticket cannot make a new record forgotten."""
    old = apply(registry, record("p"))
    registry.journalled(old)
    assert apply(registry, record("q")) > old


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
    lives = [registry.begin(at) for at in (100, 5, 5, 200)]
    assert lives == [100, 101, 102, 200]
