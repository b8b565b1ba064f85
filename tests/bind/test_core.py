from __future__ import annotations

import pytest
from binding import Node, places, query

from roamcast.bind.core import Binder
from roamcast.bind.messages import (
    Activated,
    Bound,
    Deactivated,
    Message,
    Moved,
    PlacesChanged,
    SourceChanged,
    SourceRegistered,
    SourceRemoved,
    StateChanged,
    Subscribed,
    SubscriberChanged,
    SubscriberRegistered,
    SubscriberRemoved,
    Unbound,
    Unsubscribed,
    Unwanted,
    Wanted,
)
from roamcast.bind.states import State
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC

NEAREST = "Select Where &location in nearest"
LIGHT = "Select Where &context = light and &location in nearest"
IN_REACH = "Select nearof() Where &location in rang:loc(30)"
FIRE = 'Select all() Where &terms has ("fire")'
STAGE = places(stage=(0, 0, 10, 10))


def test_a_source_is_found_at_once() -> None:
    """A subscription for which a source qualifies is active from the start, and its source wanted."""
    node = Node()
    node.source("lamp", (3, 4))
    node.subscriber("ann", (0, 0))
    assert node.subscribe("p", "ann", NEAREST) == [
        Bound("p", "lamp", 3),
        StateChanged("p", State.ACTIVE, None, 3),
        Wanted("lamp", 3),
    ]


def test_nobody_qualifies() -> None:
    """An expression that nobody satisfies stays in state start, and says why."""
    node = Node()
    node.source("bell", (3, 4), context="noise")
    node.subscriber("ann", (0, 0))
    why = "no source with &context = light is registered"
    assert node.subscribe("p", "ann", LIGHT) == [StateChanged("p", State.START, why, 3)]


def test_a_source_that_comes_later_is_joined() -> None:
    """From start a subscription joins the first source that qualifies."""
    node = Node()
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", LIGHT)
    effects = node.source("lamp", (1, 1), context="light")
    assert effects == [Bound("p", "lamp", 3), StateChanged("p", State.ACTIVE, None, 3), Wanted("lamp", 3)]


def test_the_source_goes_out_of_reach_and_comes_back() -> None:
    """An active subscription whose source ceases to fit is inactive, until one is found again."""
    node = Node()
    node.source("lamp", (0, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", IN_REACH)
    assert node.move("lamp", 31) == [
        Unbound("p", "lamp", 4),
        StateChanged("p", State.INACTIVE, "the only source is not within 30 m", 4),
        Unwanted("lamp", 4),
    ]
    assert node.move("lamp", 30) == [
        Bound("p", "lamp", 5),
        StateChanged("p", State.ACTIVE, None, 5),
        Wanted("lamp", 5),
    ]


def test_from_one_source_to_the_next() -> None:
    """A subscription that changes its source stays active; demand moves on with it."""
    node = Node()
    node.source("a", (0, 0))
    node.source("b", (10, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("p", "ann", NEAREST)
    assert node.move("ann", 9) == [
        Unbound("p", "a", 5),
        Bound("p", "b", 5),
        Unwanted("a", 5),
        Wanted("b", 5),
    ]


def test_a_source_that_others_listen_to_stays_wanted() -> None:
    """Demand ends with the last binding only."""
    node = Node()
    node.source("a", (0, 0))
    for id in ("ann", "bob"):
        node.subscriber(id, (0, 0))
        node.subscribe(f"p-{id}", id, IN_REACH)
    assert not any(isinstance(effect, Unwanted) for effect in node.move("ann", 99))
    assert Unwanted("a", 7) in node.move("bob", 99)


def test_a_nearer_source_appears() -> None:
    """A binding changes also when neither its subscriber nor its source has moved."""
    node = Node()
    node.source("a", (5, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    node.source("b", (1, 0))
    assert node.sources("p") == ("b",)
    node.tell(SourceRemoved("b"))
    assert node.sources("p") == ("a",)


def test_a_source_that_changes_its_attributes() -> None:
    """A source that ceases to qualify is lost, one that comes to qualify is found."""
    node = Node()
    node.source("a", (1, 0), context="light")
    node.source("b", (2, 0), context="noise")
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", LIGHT)
    node.tell(SourceChanged("a", {"context": "noise"}))
    assert (node.sources("p"), node.states()["p"]) == ((), "inactive")
    node.tell(SourceChanged("b", {"context": "light"}))
    assert (node.sources("p"), node.states()["p"]) == (("b",), "active")


def test_sources_without_a_position_do_not_qualify() -> None:
    """A source counts from its first position on."""
    node = Node()
    node.source("lamp")
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    assert node.states() == {"p": "start"}
    node.move("lamp", 700)
    assert node.sources("p") == ("lamp",)


def test_sources_that_are_placed_together() -> None:
    """When the positions of several sources become known at once, the best of them is bound and no other."""
    node = Node()
    node.source("a")
    node.source("b")
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    effects = node.binder.handle_moves(["a", "b"], [9, 1], [0, 0], [4, 4], 5)
    assert effects == [Bound("p", "b", 5), StateChanged("p", State.ACTIVE, None, 5), Wanted("b", 5)]


def test_a_binding_for_a_moment_is_not_told() -> None:
    """In a batch that moves one source away and brings another for the first time, only the end is told."""
    node = Node()
    for id, x in (("a", 1.0), ("b", 5.0)):
        node.source(id, (x, 0))
    node.source("c")
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    effects = node.binder.handle_moves(["a", "c"], [99, 2], [0, 0], [5, 5], 6)
    assert effects == [Unbound("p", "a", 6), Bound("p", "c", 6), Unwanted("a", 6), Wanted("c", 6)]


def test_a_subscriber_without_a_position() -> None:
    """A subscription waits in state start until its subscriber is somewhere."""
    node = Node()
    node.source("lamp", (0, 0))
    node.subscriber("ann")
    why = "the position of ann is not known"
    assert node.subscribe("p", "ann", NEAREST) == [StateChanged("p", State.START, why, 3)]
    assert Bound("p", "lamp", 4) in node.move("ann", 5)


def test_leaving_the_place_stops_and_coming_back_starts_anew() -> None:
    """Life-control false: cancelled, state stop. True again: started anew."""
    node = Node(STAGE)
    node.source("mic", (5, 5))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    assert node.move("ann", 11, 5) == [
        Unbound("p", "mic", 4),
        StateChanged("p", State.STOP, "ann is not in stage", 4),
        Unwanted("mic", 4),
    ]
    assert node.move("ann", 10, 5) == [
        Bound("p", "mic", 5),
        StateChanged("p", State.ACTIVE, None, 5),
        Wanted("mic", 5),
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
    assert node.move("ann", 5, 5) == [StateChanged("p", State.START, why, 6)]


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
    assert node.subscribe("p", "ann", FIRE) == [StateChanged("p", State.ACTIVE, None, 2), Activated("p", 2)]


def test_the_match_plan_obeys_its_life_control() -> None:
    """A subscription of the match plan is activated and deactivated as its subscriber comes and goes."""
    node = Node(STAGE)
    node.subscriber("ann", (50, 50))
    assert node.subscribe("p", "ann", f"{FIRE} Life-control #location in stage") == [
        StateChanged("p", State.STOP, "ann is not in stage", 2)
    ]
    assert node.move("ann", 5, 5) == [StateChanged("p", State.ACTIVE, None, 3), Activated("p", 3)]
    why = "ann is not in stage"
    assert node.move("ann", 50, 50) == [StateChanged("p", State.STOP, why, 4), Deactivated("p", 4)]


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


def test_unsubscribing() -> None:
    """A subscription that ends gives up its sources and its agent."""
    node = Node()
    node.source("a", (0, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    assert node.tell(Unsubscribed("p")) == [
        Unbound("p", "a", 4),
        StateChanged("p", State.STOP, "it was removed", 4),
        Unwanted("a", 4),
    ]
    assert node.binder.agents() == []


def test_a_subscriber_that_is_removed() -> None:
    """The subscriptions of a subscriber go with it, in either plan."""
    node = Node(STAGE)
    node.source("a", (0, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    node.subscribe("q", "ann", FIRE)
    effects = node.tell(SubscriberRemoved("ann"))
    assert {Unbound("p", "a", 5), Deactivated("q", 5), Unwanted("a", 5)} <= set(effects)
    assert node.states() == {}
    with pytest.raises(NotFoundError):
        node.move("ann", 1)


def test_who_comes_after_a_removed_one_has_nothing_of_it() -> None:
    """A subscriber that gets the place in memory of a removed one does not hear what that one listened to."""
    node = Node(STAGE)
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", f"{FIRE} Life-control #location in stage")
    node.tell(SubscriberRemoved("ann"))
    node.subscriber("bob", (50, 50))
    assert node.move("bob", 5, 5) == []


def test_several_sources() -> None:
    """nearest(k) binds up to k sources, one effect each, and is active with any."""
    node = Node()
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", "Select Where &location in nearest(2)")
    node.source("a", (1, 0))
    node.source("b", (2, 0))
    assert node.sources("p") == ("a", "b")
    assert node.source("c", (0, 0)) == [Unbound("p", "b", 5), Bound("p", "c", 5), Unwanted("b", 5), Wanted("c", 5)]


def test_anyof_takes_who_is_awake_already() -> None:
    """anyof() prefers the source with most bindings, then the lower id, and keeps what it has."""
    node = Node()
    for id in "abc":
        node.source(id, (0, 0))
    node.source("far", (1000, 0))
    node.subscriber("ann", (0, 0))
    text = "Select anyof() Where &location in rang:loc(30)"
    node.subscribe("p", "ann", text)
    assert node.sources("p") == ("a",)
    node.subscribe("q", "ann", text)
    assert node.sources("q") == ("a",)
    node.move("a", 31)
    assert (node.sources("p"), node.sources("q")) == (("b",), ("b",))
    node.move("a", 0)
    assert (node.sources("p"), node.sources("q")) == (("b",), ("b",))


@pytest.mark.parametrize(
    "message",
    [
        SourceChanged("nobody", {}),
        SourceRemoved("nobody"),
        SourceRemoved("ann"),
        SubscriberChanged("nobody", {}),
        SubscriberRemoved("nobody"),
        SubscriberRemoved("lamp"),
        Moved("nobody", 0, 0, 1),
        Subscribed("q", "nobody", query(NEAREST)),
        Subscribed("q", "lamp", query(NEAREST)),
        Unsubscribed("nothing"),
    ],
    ids=repr,
)
def test_who_is_unknown(message: Message) -> None:
    """A message about somebody unknown is refused and changes nothing."""
    node = Node()
    node.source("lamp", (0, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    before = node.binder.statuses(), node.binder.agents()
    with pytest.raises(NotFoundError):
        node.tell(message)
    assert (node.binder.statuses(), node.binder.agents()) == before


@pytest.mark.parametrize(
    "message",
    [
        SourceRegistered("lamp", {"context": "noise"}),
        SourceRegistered("ann", {}),
        SubscriberRegistered("lamp", {"context": "light"}),
        SubscriberRegistered("ann", {"role": True}),
        Subscribed("p", "ann", query(IN_REACH)),
    ],
    ids=repr,
)
def test_an_id_that_is_taken(message: Message) -> None:
    """An id has one meaning; registering it again with another is refused."""
    node = Node()
    node.source("lamp", context="light")
    node.subscriber("ann", role=1)
    node.subscribe("p", "ann", NEAREST)
    with pytest.raises(ConflictError, match="taken"):
        node.tell(message)


def test_the_same_message_twice() -> None:
    """What is said again in the same words changes nothing."""
    node = Node()
    messages: list[Message] = [
        SourceRegistered("lamp", {"context": "light"}, Position("lamp", 1, 1, 0)),
        SubscriberRegistered("ann", {}, Position("ann", 0, 0, 0)),
        Subscribed("p", "ann", query(LIGHT)),
        Moved("ann", 5, 5, 3),
        SourceChanged("lamp", {"context": "light"}),
        SubscriberChanged("ann", {}),
        PlacesChanged(STAGE),
    ]
    for message in messages:
        node.tell(message)
        status = node.binder.statuses()
        assert node.tell(message) == []
        assert node.binder.statuses() == status


def test_registering_again_with_a_newer_position_is_a_move() -> None:
    """A registration that is repeated later may bring a newer position, not an older one."""
    node = Node()
    node.subscriber("ann", (0, 0))
    node.tell(SubscriberRegistered("ann", {}, Position("ann", 7, 7, 5)))
    node.tell(SubscriberRegistered("ann", {}, Position("ann", 1, 1, 4)))
    assert node.binder.where("ann").position == Position("ann", 7, 7, 5)


def test_an_older_move_is_ignored_and_counted() -> None:
    """A clock that went back moves nobody."""
    node = Node()
    node.source("a", (0, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("p", "ann", IN_REACH)
    node.tell(Moved("a", 2, 0, 100))
    assert node.tell(Moved("a", 999, 0, 99)) == []
    assert node.binder.stale_moves == 1


def test_effects_never_go_back_in_time() -> None:
    """When the node's clock goes back, effects carry the latest time so far."""
    binder = Binder(GEOGRAPHIC)
    binder.handle(SubscriberRegistered("ann", {}), 100)
    assert binder.handle(Subscribed("p", "ann", query(FIRE)), 50)[0].at == 100


@pytest.mark.parametrize(
    "message",
    [
        SourceRegistered("a", {}, Position("a", 0, 91, 0)),
        SubscriberRegistered("b", {}, Position("b", 181, 0, 0)),
        Moved("ann", float("nan"), 0, 1),
    ],
    ids=repr,
)
def test_positions_out_of_space(message: Message) -> None:
    """A point that is not in space is refused; who was to be registered there is not."""
    node = Node(space=GEOGRAPHIC)
    node.subscriber("ann")
    with pytest.raises(InputError):
        node.tell(message)
    assert node.binder.where("ann").position is None
    for id in "ab":
        with pytest.raises(NotFoundError):
            node.binder.where(id)


def test_a_batch_of_moves_is_taken_whole_or_not_at_all() -> None:
    """One unknown entity in a batch, and nobody has moved."""
    node = Node()
    node.source("a", (0, 0))
    with pytest.raises(NotFoundError):
        node.binder.handle_moves(["a", "nobody"], [1, 1], [1, 1], [1, 1], 2)
    assert node.binder.where("a").position == Position("a", 0, 0, 0)


def test_a_thousand_subscriptions_with_one_expression() -> None:
    """However many subscriptions want the same, one agent serves them, and each gets its own nearest source."""
    node = Node()
    for number in range(10):
        node.source(f"s{number}", (100 * number, 0))
    for number in range(1000):
        node.subscriber(f"u{number}", (number, 0))
        node.subscribe(f"p{number}", f"u{number}", NEAREST)
    (agent,) = node.binder.agents()
    assert len(agent.active) == 1000
    assert node.sources("p449") == ("s4",)
    assert node.sources("p451") == ("s5",)


def test_the_conference_room() -> None:
    """The worked case of section 6.1: on the stage the central sensor, off it the nearest noise sensor."""
    node = Node(places(stage=(20, 0, 30, 10)))
    node.source("A", (25, 5), context="noise", role="central")
    for number in range(1, 8):
        node.source(f"B{number}", (3 * number - 2, 5), context="noise", role="room")
    node.subscriber("speaker", (30, 5))
    node.subscribe(
        "a", "speaker", "Select Where &role = central and &location in nearest Life-control #location in stage"
    )
    room = "Select Where &context = noise and &role = room and &location in nearest"
    node.subscribe("b", "speaker", f"{room} Life-control #location not in stage")
    heard = []
    for x in range(30, -1, -1):
        node.move("speaker", x, 5)
        heard.append((node.sources("a"), node.sources("b")))
    assert heard[:11] == [(("A",), ())] * 11
    assert [b for a, b in heard[11:] if a == ()] == [(f"B{max(1, round((x + 2) / 3))}",) for x in range(19, -1, -1)]
    node.move("speaker", 22, 5)
    assert node.states() == {"a": "active", "b": "stop"}
