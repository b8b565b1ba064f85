"""The contract of every RegistryStore: subscriptions, bindings and the control outbox."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from registries import START, added, apply, entity, followed, record

from roamcast.bind.lcesm.messages import Bound, StateChanged, SubscriptionState, Unbound
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
def test_subscription_is_returned_as_added(
    registry: RegistryStore, body: str | None, places: tuple[str, ...], lifecycle: Lifecycle | None
) -> None:
    """Text, body, time, places and lifecycle."""
    subscription = Subscription(
        "q", "ann", "Select …", body, 2**60, places, lifecycle, has_moving_region=body is not None
    )
    apply(registry, SubscriptionAdded(subscription))
    assert registry.subscription("q") == subscription


def test_existing_subscription_id_is_refused(registry: RegistryStore) -> None:
    """Also within one call; its control record is not stored."""
    apply(registry, added("q"), record("q"))
    for changes in ([added("q"), record("q")], [added("p"), added("p"), record("p")]):
        with pytest.raises(ConflictError):
            apply(registry, *changes)
    assert len(registry.control_outbox()) == 1


def test_removed_subscription_and_its_history_are_deleted(registry: RegistryStore) -> None:
    """Its id can be used again."""
    apply(registry, followed("q"), Bound("q", "s", 1), Unbound("q", "s", 2), Bound("q", "t", 2))
    apply(registry, SubscriptionRemoved("q"))
    with pytest.raises(NotFoundError):
        registry.subscription("q")
    apply(registry, added("q"))
    assert registry.subscription("q") == added("q").subscription
    assert registry.bindings("q", 10) == registry.live_bindings() == []


def test_subscriptions_and_bindings_are_removed_with_their_subscriber(registry: RegistryStore) -> None:
    """Those of others stay."""
    apply(registry, entity("ann", "subscriber"), entity("bob", "subscriber"))
    apply(registry, followed("p"), followed("q", "bob"), Bound("p", "s", 1), Bound("q", "s", 1))
    apply(registry, EntityRemoved("ann"))
    assert [s.id for s in registry.subscriptions()] == ["q"]
    assert registry.live_bindings() == [Bound("q", "s", 1)]


def test_changes_are_applied_in_order(registry: RegistryStore) -> None:
    """Added, removed and added again in one call exists."""
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
    "body": BodySet("nobody", "{}", ""),
    "lifecycle": LifecycleEnded("nobody"),
    "binding": Bound("nobody", "x", 1),
    "unsubscription": SubscriptionRemoved("nobody"),
}


@pytest.mark.parametrize("change", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_id_refuses_all_changes_of_a_call(registry: RegistryStore, change: Change) -> None:
    apply(registry, entity("x"), followed("q"))
    with pytest.raises(NotFoundError) as caught:
        apply(registry, record("q"), Position("x", 1, 1, 10), Bound("q", "x", 7), entity("y"), change)
    assert caught.value.where == "nobody"
    assert registry.entity("x").position is None
    assert [e.id for e in registry.entities()] == ["x"]
    assert registry.live_bindings() == []
    assert registry.control_outbox() == []


def test_subscriptions_are_ordered_by_id(registry: RegistryStore) -> None:
    """All or of one subscriber, in pages."""
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


def test_subscriptions_of_a_subscriber_are_counted(registry: RegistryStore) -> None:
    """With or without a lifecycle."""
    apply(registry, added("a"), followed("b"), added("c", "bob"))
    assert [registry.subscription_count(id) for id in ("ann", "bob", "nobody")] == [2, 1, 0]


def test_subscriptions_with_lifecycle_places_or_moving_region_are_found(registry: RegistryStore) -> None:
    """The others are counted."""
    apply(
        registry,
        added("a", has_moving_region=True),
        followed("d"),
        added("c", places=("room",), source_condition="x", cell="1/2/3"),
        followed("b"),
    )
    assert [s.id for s in registry.subscriptions_with_lifecycle()] == ["b", "d"]
    assert [s.id for s in registry.subscriptions_naming_places()] == ["c"]
    assert [s.id for s in registry.subscriptions_with_moving_region()] == ["a"]
    assert registry.count_without_lifecycle() == {("", ""): 1, ("x", "1/2/3"): 1}


def test_lifecycle_follows_the_state(registry: RegistryStore) -> None:
    """`was_active` stays true."""
    apply(registry, followed("q"))
    lifecycles = []
    for at, state in enumerate(
        (SubscriptionState.START, SubscriptionState.ACTIVE, SubscriptionState.INACTIVE, SubscriptionState.STOP),
        start=10,
    ):
        apply(registry, StateChanged("q", state, f"why {at}", at))
        lifecycles.append(registry.subscription("q").lifecycle)
    assert lifecycles == [
        Lifecycle("start", "why 10", 10, was_active=False),
        Lifecycle("active", "why 11", 11, was_active=True),
        Lifecycle("inactive", "why 12", 12, was_active=True),
        Lifecycle("stop", "why 13", 13, was_active=True),
    ]


def test_lifecycle_can_end_and_start_again(registry: RegistryStore) -> None:
    apply(registry, added("q"), StateChanged("q", SubscriptionState.STOP, "why", 7))
    assert registry.subscription("q").lifecycle == Lifecycle("stop", "why", 7, was_active=False)
    apply(registry, LifecycleEnded("q"))
    assert registry.subscription("q") == added("q").subscription
    assert (registry.subscriptions_with_lifecycle(), registry.count_without_lifecycle()) == ([], {("", ""): 1})


def test_body_is_replaced(registry: RegistryStore) -> None:
    """With the cell of its region, and nothing else."""
    apply(registry, added("q", body="old", places=("room",)))
    apply(registry, BodySet("q", "new", "1/2/3"))
    assert registry.subscription("q") == added("q", body="new", places=("room",), cell="1/2/3").subscription


def test_bindings_begin_and_end(registry: RegistryStore) -> None:
    """Live ones, and the history of each subscription, newest first and in pages."""
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


def test_live_bindings_of_given_subscriptions(registry: RegistryStore) -> None:
    """However many."""
    ids = [f"q{number:04}" for number in range(1200)]
    apply(registry, *map(followed, ids), *(Bound(id, "a", 1) for id in ids), Bound("q0001", "b", 2))
    apply(registry, Unbound("q0002", "a", 3))
    found = registry.live_bindings(["q0002", "q0001", "q0000", "nothing"])
    assert found == [Bound("q0000", "a", 1), Bound("q0001", "a", 1), Bound("q0001", "b", 2)]
    assert registry.live_bindings(ids) == registry.live_bindings()
    assert registry.live_bindings([]) == []


def test_unbinding_without_a_binding_changes_nothing(registry: RegistryStore) -> None:
    apply(registry, followed("q"), Bound("q", "a", 1), Unbound("q", "a", 2))
    apply(registry, Unbound("q", "a", 3), Unbound("q", "b", 3))
    assert registry.bindings("q", 10) == [Binding("q", "a", 1, 2)]


def test_old_bindings_are_pruned(registry: RegistryStore) -> None:
    """Oldest first, up to the limit; live ones stay."""
    apply(registry, followed("q"), Bound("q", "old", 1))
    for at in range(10, 14):
        apply(registry, Bound("q", "a", at), Unbound("q", "a", at + 1))
    assert [registry.prune(13, 1), registry.prune(13, 10), registry.prune(13, 10)] == [1, 1, 0]
    assert [b.bound_at for b in registry.bindings("q", 10)] == [13, 12, 1]


def test_outbox_keeps_records_in_order(registry: RegistryStore) -> None:
    """`apply` returns the last row."""
    last = [apply(registry, record("q"), added("q")), apply(registry, record("p"), record("q", REMOVAL))]
    numbers, records = zip(*registry.control_outbox(), strict=True)
    assert records == (record("q"), record("p"), record("q", REMOVAL))
    assert list(numbers) == sorted(set(numbers))
    assert last == [numbers[0], numbers[2]]
    assert registry.control_outbox(after=numbers[0], limit=1) == [(numbers[1], record("p"))]


def test_record_with_all_fields_is_returned_unchanged(registry: RegistryStore) -> None:
    whole = Record(EVENT, "s", 2**62, "s:1", 1_700_000_000_000_000, 1.5, -0.25, ("a", "é"), {"level": 0.1}, "{}")
    apply(registry, whole)
    assert [r for _, r in registry.control_outbox()] == [whole]


def test_outbox_is_trimmed_through_a_row(registry: RegistryStore) -> None:
    """Idempotent."""
    apply(registry, record("p"), record("q"))
    (first, _), second = registry.control_outbox()
    for through in (first, first, 0):
        registry.trim_outbox(through)
    assert registry.control_outbox() == [second]


def test_apply_trims_the_outbox(registry: RegistryStore) -> None:
    """In the same transaction, without the new records."""
    last = apply(registry, record("p"))
    registry.apply([record("q")], at=1, journalled=last)
    assert [r for _, r in registry.control_outbox()] == [record("q")]


def test_outbox_rows_are_never_reused(registry: RegistryStore) -> None:
    """So a late trim cannot remove a new record."""
    old = apply(registry, record("p"))
    registry.trim_outbox(old)
    assert apply(registry, record("q")) > old


def test_pipeline_identity_is_stored(registry: RegistryStore) -> None:
    """None at first."""
    assert registry.pipeline() is None
    registry.set_pipeline("one")
    registry.set_pipeline("two")
    assert registry.pipeline() == "two"
