"""Subscriptions start, stop and end: life-control, places, the match plan, removal."""

from __future__ import annotations

import pytest
from binding import Node, places

from roamcast.bind.lcesm.messages import (
    Activated,
    Bound,
    Deactivated,
    PlacesChanged,
    SourceDemanded,
    SourceIdle,
    SourceRemoved,
    StateChanged,
    SubscriberChanged,
    SubscriberRemoved,
    Unbound,
    Unsubscribed,
)
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.errors import NotFoundError

NEAREST = "Select Where &location in nearest"
FIRE = 'Select all() Where &terms has ("fire")'
STAGE = places(stage=(0, 0, 10, 10))


def test_leaving_the_place_stops_and_coming_back_starts_anew() -> None:
    """Life-control false: cancelled, state stop. True again: started anew."""
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


def test_started_anew_without_a_source() -> None:
    """What was active before it stopped is in state start when it begins again and finds nobody."""
    node = Node(STAGE)
    node.source("mic", (5, 5))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    node.move("ann", 11, 5)
    node.tell(SourceRemoved("mic"))
    why = "no source is registered"
    assert node.move("ann", 5, 5) == [StateChanged("p", SubscriptionState.START, why, 6)]


def test_an_agent_and_a_stopped_subscription() -> None:
    """Who has quit is still served by its agent, and neither active nor inactive."""
    node = Node(STAGE)
    node.source("mic", (5, 5))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    (before,) = node.binder.agents()
    node.move("ann", 11, 5)
    (after,) = node.binder.agents()
    assert (before.members, before.active, before.inactive) == (("p",), ("p",), ())
    assert (after.members, after.active, after.inactive) == (("p",), (), ())


def test_a_stopped_subscription_is_not_bound() -> None:
    """While its life-control does not hold, nothing that sources do matters to a subscription."""
    node = Node(STAGE)
    node.subscriber("ann", (50, 50))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    assert node.source("mic", (50, 50)) == []
    assert node.move("mic", 51) == []
    assert node.states() == {"p": "stop"}


def test_a_place_between_two_positions_of_a_batch() -> None:
    """Of a batch only the end counts: who is inside before and after was never told to stop."""
    node = Node(STAGE)
    node.source("mic", (5, 5))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    assert node.binder.handle_moves(["ann", "ann"], [50, 6], [50, 6], [10, 11], 12) == []


def test_entering_binds_to_the_source_that_is_nearest_there() -> None:
    """A subscription that starts with a move is bound where the move ends, and nowhere on the way."""
    node = Node(STAGE)
    node.source("far", (40, 0))
    node.source("near", (1, 0))
    node.subscriber("ann", (50, 0))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    assert [effect for effect in node.move("ann", 0) if isinstance(effect, Bound)] == [Bound("p", "near", 5)]


def test_life_control_on_an_attribute() -> None:
    """A subscriber's attributes start and stop its subscriptions too."""
    node = Node()
    node.source("a", (0, 0))
    node.subscriber("ann", (0, 0), role="guard")
    node.subscribe("p", "ann", f"{NEAREST} Life-control #role = guard")
    assert node.states() == {"p": "active"}
    node.tell(SubscriberChanged("ann", {"role": "cook"}))
    assert node.states() == {"p": "stop"}
    node.tell(SubscriberChanged("ann", {"role": "guard"}))
    assert node.states() == {"p": "active"}


def test_the_match_plan_is_active_at_once() -> None:
    """A subscription of the match plan needs no source and no position."""
    node = Node()
    node.subscriber("ann")
    assert node.subscribe("p", "ann", FIRE) == [StateChanged("p", SubscriptionState.ACTIVE, None, 2), Activated("p", 2)]


def test_the_match_plan_obeys_its_life_control() -> None:
    """A subscription of the match plan is activated and deactivated as its subscriber comes and goes."""
    node = Node(STAGE)
    node.subscriber("ann", (50, 50))
    assert node.subscribe("p", "ann", f"{FIRE} Life-control #location in stage") == [
        StateChanged("p", SubscriptionState.STOP, "ann is not in stage", 2)
    ]
    assert node.move("ann", 5, 5) == [StateChanged("p", SubscriptionState.ACTIVE, None, 3), Activated("p", 3)]
    why = "ann is not in stage"
    assert node.move("ann", 50, 50) == [StateChanged("p", SubscriptionState.STOP, why, 4), Deactivated("p", 4)]


def test_places_that_change() -> None:
    """Who is in a place now and was not before starts, though nobody has moved."""
    node = Node(STAGE)
    node.source("mic", (50, 50))
    node.subscriber("ann", (50, 50))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    node.tell(PlacesChanged(places(stage=(40, 40, 60, 60))))
    assert node.states() == {"p": "active"}
    node.tell(PlacesChanged(places()))
    assert node.states() == {"p": "stop"}


def test_a_subscriber_that_is_removed() -> None:
    """The subscriptions of a subscriber go with it, in either plan."""
    node = Node(STAGE)
    node.source("a", (0, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    node.subscribe("q", "ann", FIRE)
    effects = node.tell(SubscriberRemoved("ann"))
    assert {Unbound("p", "a", 5), Deactivated("q", 5), SourceIdle("a", 5)} <= set(effects)
    assert node.states() == {}
    with pytest.raises(NotFoundError):
        node.move("ann", 1)


def test_a_subscriber_with_many_subscriptions() -> None:
    """Whichever of a subscriber's subscriptions ends, the others stay its own."""
    for ended in ("p", "q", "r"):
        node = Node()
        node.subscriber("ann", (0, 0))
        for id in ("p", "q", "r"):
            node.subscribe(id, "ann", NEAREST)
        node.tell(Unsubscribed(ended))
        assert set(node.binder.where("ann").subscriptions) == {"p", "q", "r"} - {ended}


def test_who_comes_after_a_removed_one_has_nothing_of_it() -> None:
    """A subscriber that gets the place in memory of a removed one does not hear what that one listened to."""
    node = Node(STAGE)
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", f"{FIRE} Life-control #location in stage")
    node.tell(SubscriberRemoved("ann"))
    node.subscriber("bob", (50, 50))
    assert node.move("bob", 5, 5) == []
