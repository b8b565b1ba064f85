"""Subscriptions start, stop and end: life-control, places, plan match, removal."""

from __future__ import annotations

import pytest
from binding import Node, places

from roamcast.bind.lcesm.messages import (
    Bound,
    MatchStarted,
    MatchStopped,
    SourceDemanded,
    SourceIdle,
    SourceRemoved,
    StateChanged,
    SubscriberChanged,
    SubscriberRemoved,
    SubscriptionState,
    Unbound,
    Unsubscribed,
)
from roamcast.errors import NotFoundError

NEAREST = "Select Where &location in nearest"
FIRE = 'Select all() Where &terms has ("fire")'
STAGE = places(stage=(0, 0, 10, 10))


def test_life_control_stops_and_starts_a_subscription() -> None:
    """Leaving the place cancels it; coming back starts it again."""
    node = Node(STAGE)
    node.source("mic", (5, 5))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    assert node.move("ann", 11, 5) == [
        Unbound("p", "mic", 4),
        StateChanged("p", SubscriptionState.STOP, "ann is not in stage", 4),
        SourceIdle("mic", 4),
    ]
    assert node.move("ann", 10, 5) == [
        Bound("p", "mic", 5),
        StateChanged("p", SubscriptionState.ACTIVE, None, 5),
        SourceDemanded("mic", 5),
    ]


def test_a_restarted_subscription_without_a_source_is_in_state_start() -> None:
    """Also if it was active before it stopped."""
    node = Node(STAGE)
    node.source("mic", (5, 5))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    node.move("ann", 11, 5)
    node.tell(SourceRemoved("mic"))
    why = "no source is registered"
    assert node.move("ann", 5, 5) == [StateChanged("p", SubscriptionState.START, why, 6)]


def test_an_agent_still_serves_a_stopped_subscription() -> None:
    """As neither active nor inactive."""
    node = Node(STAGE)
    node.source("mic", (5, 5))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    (before,) = node.binder.agents()
    node.move("ann", 11, 5)
    (after,) = node.binder.agents()
    assert (before.subscriptions, before.active, before.inactive) == (("p",), ("p",), ())
    assert (after.subscriptions, after.active, after.inactive) == (("p",), (), ())


def test_a_stopped_subscription_is_not_bound() -> None:
    """Whatever its sources do."""
    node = Node(STAGE)
    node.subscriber("ann", (50, 50))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    assert node.source("mic", (50, 50)) == []
    assert node.move("mic", 51) == []
    assert node.states() == {"p": "stop"}


def test_only_the_last_position_of_a_batch_counts_for_life_control() -> None:
    """A subscriber that is inside before and after never stops."""
    node = Node(STAGE)
    node.source("mic", (5, 5))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    assert node.binder.handle_moves(["ann", "ann"], [50, 6], [50, 6], [10, 11], 12) == []


def test_a_move_that_starts_a_subscription_binds_at_its_end() -> None:
    """And to nothing on the way."""
    node = Node(STAGE)
    node.source("far", (40, 0))
    node.source("near", (1, 0))
    node.subscriber("ann", (50, 0))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    assert [effect for effect in node.move("ann", 0) if isinstance(effect, Bound)] == [Bound("p", "near", 5)]


def test_life_control_may_test_attributes() -> None:
    """A change of the subscriber starts and stops its subscriptions."""
    node = Node()
    node.source("a", (0, 0))
    node.subscriber("ann", (0, 0), role="guard")
    node.subscribe("p", "ann", f"{NEAREST} Life-control #role = guard")
    assert node.states() == {"p": "active"}
    node.tell(SubscriberChanged("ann", {"role": "cook"}))
    assert node.states() == {"p": "stop"}
    node.tell(SubscriberChanged("ann", {"role": "guard"}))
    assert node.states() == {"p": "active"}


def test_plan_match_is_active_at_once() -> None:
    """It needs no source and no position."""
    node = Node()
    node.subscriber("ann")
    assert node.subscribe("p", "ann", FIRE) == [
        StateChanged("p", SubscriptionState.ACTIVE, None, 2),
        MatchStarted("p", 2),
    ]


def test_plan_match_obeys_its_life_control() -> None:
    """It starts and stops as its subscriber moves."""
    node = Node(STAGE)
    node.subscriber("ann", (50, 50))
    assert node.subscribe("p", "ann", f"{FIRE} Life-control #location in stage") == [
        StateChanged("p", SubscriptionState.STOP, "ann is not in stage", 2)
    ]
    assert node.move("ann", 5, 5) == [StateChanged("p", SubscriptionState.ACTIVE, None, 3), MatchStarted("p", 3)]
    why = "ann is not in stage"
    assert node.move("ann", 50, 50) == [StateChanged("p", SubscriptionState.STOP, why, 4), MatchStopped("p", 4)]


def test_removing_a_subscriber_removes_its_subscriptions() -> None:
    """In both plans."""
    node = Node(STAGE)
    node.source("a", (0, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    node.subscribe("q", "ann", FIRE)
    effects = node.tell(SubscriberRemoved("ann"))
    assert {Unbound("p", "a", 5), MatchStopped("q", 5), SourceIdle("a", 5)} <= set(effects)
    assert node.states() == {}
    with pytest.raises(NotFoundError):
        node.move("ann", 1)


def test_other_subscriptions_stay_when_one_ends() -> None:
    """Whichever it is."""
    for ended in ("p", "q", "r"):
        node = Node()
        node.subscriber("ann", (0, 0))
        for id in ("p", "q", "r"):
            node.subscribe(id, "ann", NEAREST)
        node.tell(Unsubscribed(ended))
        assert set(node.binder.entity("ann").subscriptions) == {"p", "q", "r"} - {ended}


def test_a_reused_handle_inherits_no_subscriptions() -> None:
    """Of the removed subscriber that had it before."""
    node = Node(STAGE)
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", f"{FIRE} Life-control #location in stage")
    node.tell(SubscriberRemoved("ann"))
    node.subscriber("bob", (50, 50))
    assert node.move("bob", 5, 5) == []
