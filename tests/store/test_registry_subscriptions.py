"""What every RegistryStore promises of subscriptions, their bindings, and records that wait for the journal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from registries import START, added, apply, entity, followed, record

from roamcast.bind.lcesm.messages import Bound, StateChanged, Unbound
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.errors import ConflictError, NotFoundError
from roamcast.journal.records import EVENT, REMOVAL, Record
from roamcast.model import Lifecycle, Position, Subscription
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import (
    AttributesSet,
    Binding,
    BodySet,
    Change,
    Entity,
    EntityAdded,
    EntityRemoved,
    LifecycleEnded,
    SubscriptionAdded,
    SubscriptionRemoved,
)


@pytest.mark.parametrize("body", [None, '{"box": null}'])
@pytest.mark.parametrize("places", [(), ("room A", "Küche")])
@pytest.mark.parametrize("lifecycle", [None, START, Lifecycle("active", None, 2**60, was_active=True)])
def test_a_subscription_comes_back_as_it_was_added(
    registry: RegistryStore, body: str | None, places: tuple[str, ...], lifecycle: Lifecycle | None
) -> None:
    """Text, body or none, time, places and lifecycle or none are kept."""
    subscription = Subscription(
        "q", "ann", "Select …", body, 2**60, places, lifecycle, has_moving_region=body is not None
    )
    apply(registry, SubscriptionAdded(subscription))
    assert registry.subscription("q") == subscription


def test_a_subscription_id_is_taken_once(registry: RegistryStore) -> None:
    """A second one is refused, also in one call, and its record is not kept."""
    apply(registry, added("q"), record("q"))
    for changes in ([added("q"), record("q")], [added("p"), added("p"), record("p")]):
        with pytest.raises(ConflictError):
            apply(registry, *changes)
    assert len(registry.control_outbox()) == 1


def test_a_removed_subscription_is_gone(registry: RegistryStore) -> None:
    """It is not found, nor is its history, and its id may be used again."""
    apply(registry, followed("q"), Bound("q", "s", 1), Unbound("q", "s", 2), Bound("q", "t", 2))
    apply(registry, SubscriptionRemoved("q"))
    with pytest.raises(NotFoundError):
        registry.subscription("q")
    apply(registry, added("q"))
    assert registry.subscription("q") == added("q").subscription
    assert registry.bindings("q", 10) == registry.live_bindings() == []


def test_with_a_subscriber_go_its_subscriptions_and_bindings(registry: RegistryStore) -> None:
    """Those of others stay."""
    apply(registry, entity("ann", "subscriber"), entity("bob", "subscriber"))
    apply(registry, followed("p"), followed("q", "bob"), Bound("p", "s", 1), Bound("q", "s", 1))
    apply(registry, EntityRemoved("ann"))
    assert [s.id for s in registry.subscriptions()] == ["q"]
    assert registry.live_bindings() == [Bound("q", "s", 1)]


def test_changes_are_made_in_their_order(registry: RegistryStore) -> None:
    """Added, removed and added again in one call is there; entities as well."""
    again = Entity("s", "source", "another hash")
    apply(registry, entity("s"), EntityRemoved("s"), EntityAdded(again))
    apply(registry, added("q", "bob"), SubscriptionRemoved("q"), added("q"))
    assert registry.entity("s") == again
    assert registry.subscription("q").subscriber == "ann"


UNKNOWN: dict[str, Change] = {
    "position": Position("nobody", 1, 1, 10),
    "attributes": AttributesSet("nobody", {}),
    "removal": EntityRemoved("nobody"),
    "state": StateChanged("nobody", SubscriptionState.STOP, None, 1),
    "body": BodySet("nobody", "{}"),
    "lifecycle": LifecycleEnded("nobody"),
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
    assert registry.control_outbox() == []


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
    apply(
        registry,
        added("a", has_moving_region=True),
        followed("d"),
        added("c", places=("room",), source="x"),
        followed("b"),
    )
    assert [s.id for s in registry.subscriptions_with_lifecycle()] == ["b", "d"]
    assert [s.id for s in registry.subscriptions_naming_places()] == ["c"]
    assert [s.id for s in registry.subscriptions_with_moving_region()] == ["a"]
    assert registry.count_without_lifecycle() == {"": 1, "x": 1}


def test_a_standing_follows_the_state(registry: RegistryStore) -> None:
    """Once it has been active, it has joined for good."""
    apply(registry, followed("q"))
    told = []
    for at, state in enumerate(
        (SubscriptionState.START, SubscriptionState.ACTIVE, SubscriptionState.INACTIVE, SubscriptionState.STOP),
        start=10,
    ):
        apply(registry, StateChanged("q", state, f"why {at}", at))
        told.append(registry.subscription("q").lifecycle)
    assert told == [
        Lifecycle("start", "why 10", 10, was_active=False),
        Lifecycle("active", "why 11", 11, was_active=True),
        Lifecycle("inactive", "why 12", 12, was_active=True),
        Lifecycle("stop", "why 13", 13, was_active=True),
    ]


def test_a_standing_ends(registry: RegistryStore) -> None:
    """The subscription simply runs from then on, and may have a lifecycle again."""
    apply(registry, added("q"), StateChanged("q", SubscriptionState.STOP, "why", 7))
    assert registry.subscription("q").lifecycle == Lifecycle("stop", "why", 7, was_active=False)
    apply(registry, LifecycleEnded("q"))
    assert registry.subscription("q") == added("q").subscription
    assert (registry.subscriptions_with_lifecycle(), registry.count_without_lifecycle()) == ([], {"": 1})


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
    tickets, records = zip(*registry.control_outbox(), strict=True)
    assert records == (record("q"), record("p"), record("q", REMOVAL))
    assert list(tickets) == sorted(set(tickets))
    assert last == [tickets[0], tickets[2]]
    assert registry.control_outbox(after=tickets[0], limit=1) == [(tickets[1], record("p"))]


def test_a_record_with_every_field_comes_back(registry: RegistryStore) -> None:
    """Nothing of a record is lost while it waits."""
    whole = Record(EVENT, "s", 2**62, "s:1", 1_700_000_000_000_000, 1.5, -0.25, ("a", "é"), {"level": 0.1}, "{}")
    apply(registry, whole)
    assert [r for _, r in registry.control_outbox()] == [whole]


def test_journalled_records_are_forgotten(registry: RegistryStore) -> None:
    """Up to a ticket; saying it again, or of none, is harmless."""
    apply(registry, record("p"), record("q"))
    (first, _), second = registry.control_outbox()
    for through in (first, first, 0):
        registry.trim_outbox(through)
    assert registry.control_outbox() == [second]


def test_records_are_forgotten_with_the_next_change(registry: RegistryStore) -> None:
    """In one transaction: those up to the ticket, not the new ones."""
    ticket = apply(registry, record("p"))
    registry.apply([record("q")], at=1, journalled=ticket)
    assert [r for _, r in registry.control_outbox()] == [record("q")]


def test_a_ticket_is_never_given_twice(registry: RegistryStore) -> None:
    """A late word about an old ticket cannot make a new record forgotten."""
    old = apply(registry, record("p"))
    registry.trim_outbox(old)
    assert apply(registry, record("q")) > old


def test_the_pipeline_told_last_is_remembered(registry: RegistryStore) -> None:
    """None at first, then the one set last."""
    assert registry.pipeline() is None
    registry.set_pipeline("one")
    registry.set_pipeline("two")
    assert registry.pipeline() == "two"
