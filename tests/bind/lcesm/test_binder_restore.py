from __future__ import annotations

import pytest
from binding import Node, places, query

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Bound,
    Effect,
    EntityRegistered,
    MatchStarted,
    SourceDemanded,
    SourceIdle,
    SourceRegistered,
    StateChanged,
    Subscribed,
    SubscriberRegistered,
    SubscriptionState,
    Unbound,
)
from roamcast.errors import ConflictError, NotFoundError
from roamcast.model import Position
from roamcast.space import PLANAR

ANY = "Select anyof() Where &location in rang:loc(30)"
LATER = 100


def source(id: str, x: float) -> SourceRegistered:
    return SourceRegistered(id, {}, Position(id, x, 0, 1))


ANN = SubscriberRegistered("ann", {}, Position("ann", 0, 0, 1))
P = Subscribed("p", "ann", query(ANY))


def restore(
    *messages: EntityRegistered | Subscribed,
    bindings: list[Bound] | None = None,
    states: list[StateChanged] | None = None,
) -> tuple[Binder, list[Effect]]:
    binder = Binder(PLANAR, places(stage=(0, 0, 10, 10)))
    return binder, binder.restore(messages, bindings or [], states or [], LATER)


def test_anyof_keeps_its_source() -> None:
    """Without effects, and with the time of its binding."""
    bindings = [Bound("p", "b", 7)]
    binder, effects = restore(source("a", 1), source("b", 2), ANN, P, bindings=bindings)
    assert effects == []
    status = binder.status("p")
    assert (status.sources, status.state, status.since) == (("b",), SubscriptionState.ACTIVE, 7)


@pytest.mark.parametrize(("bound", "changed"), [(7, 3), (3, 7)])
def test_since_is_the_later_of_binding_and_state(bound: int, changed: int) -> None:
    """Whichever changed last."""
    states = [StateChanged("p", SubscriptionState.ACTIVE, None, changed)]
    binder, _ = restore(source("a", 1), ANN, P, bindings=[Bound("p", "a", bound)], states=states)
    assert binder.status("p").since == 7


def test_without_previous_bindings_everything_is_reported() -> None:
    """As in a new binder."""
    _, effects = restore(source("a", 1), source("b", 2), ANN, P)
    assert effects == [
        Bound("p", "a", LATER),
        StateChanged("p", SubscriptionState.ACTIVE, None, LATER),
        SourceDemanded("a", LATER),
    ]


def test_a_source_that_no_longer_qualifies_is_replaced() -> None:
    """With the change of demand."""
    bindings = [Bound("p", "b", 7)]
    binder, effects = restore(source("a", 1), source("b", 99), ANN, P, bindings=bindings)
    assert effects == [
        Unbound("p", "b", LATER),
        Bound("p", "a", LATER),
        SourceDemanded("a", LATER),
        SourceIdle("b", LATER),
    ]
    assert binder.status("p").since == LATER


def test_a_subscription_whose_source_is_gone_is_inactive() -> None:
    """Not new."""
    _, effects = restore(ANN, P, bindings=[Bound("p", "b", 7)])
    assert effects == [
        Unbound("p", "b", LATER),
        StateChanged("p", SubscriptionState.INACTIVE, "no source is registered", LATER),
        SourceIdle("b", LATER),
    ]


def test_an_inactive_subscription_stays_inactive() -> None:
    """Until it finds a source."""
    binder, effects = restore(ANN, P, states=[StateChanged("p", SubscriptionState.INACTIVE, "", 5)])
    assert effects == []
    assert binder.agents()[0].inactive == ("p",)
    assert binder.handle(source("a", 1), LATER)[:1] == [Bound("p", "a", LATER)]


def test_bindings_of_removed_subscriptions_end() -> None:
    """With a final state."""
    _, effects = restore(source("a", 1), bindings=[Bound("p", "a", 7)])
    assert effects == [
        Unbound("p", "a", LATER),
        StateChanged("p", SubscriptionState.STOP, "it was removed", LATER),
        SourceIdle("a", LATER),
    ]


def test_a_subscription_that_is_still_stopped_has_no_effects() -> None:
    """By its life-control."""
    subscribed = Subscribed("p", "ann", query(f"{ANY} Life-control #location in box(5, 5, 6, 6)"))
    stopped = [StateChanged("p", SubscriptionState.STOP, "ann is not in box(5, 5, 6, 6)", 5)]
    _, effects = restore(source("a", 1), ANN, subscribed, states=stopped)
    assert effects == []


def test_plan_match_is_started_only_if_it_was_not_active() -> None:
    """According to the previous states."""
    subscribed = Subscribed("p", "ann", query("Select all() Where &terms has (fire)"))
    active = StateChanged("p", SubscriptionState.ACTIVE, None, 5)
    assert restore(ANN, subscribed, states=[active])[1] == []
    assert restore(ANN, subscribed)[1] == [
        StateChanged("p", SubscriptionState.ACTIVE, None, LATER),
        MatchStarted("p", LATER),
    ]


def test_nearest_k_keeps_its_sources() -> None:
    """Without effects."""
    subscribed = Subscribed("p", "ann", query("Select Where &location in nearest(2)"))
    bindings = [Bound("p", "a", 3), Bound("p", "b", 9)]
    binder, effects = restore(source("a", 1), source("b", 2), source("c", 3), ANN, subscribed, bindings=bindings)
    assert effects == []
    assert binder.status("p").since == 9


def test_restoring_into_a_used_binder_raises() -> None:
    """It would mix two histories."""
    node = Node()
    node.subscriber("ann")
    with pytest.raises(ConflictError, match="in use"):
        node.binder.restore([], [], [], 5)


def test_an_unknown_subscriber_raises() -> None:
    """The registry is inconsistent."""
    with pytest.raises(NotFoundError, match="unknown subscriber 'ann'"):
        restore(P)


@pytest.mark.parametrize("twice", [source("a", 1), ANN, P], ids=repr)
def test_a_duplicate_id_raises(twice: EntityRegistered | Subscribed) -> None:
    """The registry is inconsistent."""
    with pytest.raises(ConflictError, match="in use"):
        restore(source("a", 1), ANN, P, twice)


def test_sources_may_come_after_subscriptions() -> None:
    """With the same result."""
    binder, effects = restore(ANN, P, source("a", 1), bindings=[Bound("p", "a", 7)])
    assert effects == []
    assert binder.status("p").sources == ("a",)


def test_demand_continues_from_the_restored_bindings() -> None:
    """Only later changes are reported."""
    subscribed = Subscribed("p", "ann", query("Select Where &location in nearest(2)"))
    binder, _ = restore(source("a", 1), ANN, subscribed, bindings=[Bound("p", "a", 3)])
    assert binder.bound_sources == {"a"}
    assert binder.handle(source("b", 2), LATER) == [Bound("p", "b", LATER), SourceDemanded("b", LATER)]
