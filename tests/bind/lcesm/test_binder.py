"""Bindings follow sources and subscribers as they move and change."""

from __future__ import annotations

from binding import Node, places

from roamcast.bind.lcesm.messages import (
    Bound,
    SourceChanged,
    SourceDemanded,
    SourceIdle,
    SourceRemoved,
    StateChanged,
    SubscriptionState,
    Unbound,
    Unsubscribed,
)

NEAREST = "Select Where &location in nearest"
LIGHT = "Select Where &context = light and &location in nearest"
IN_REACH = "Select nearof() Where &location in rang:loc(30)"


def test_a_subscription_with_a_qualifying_source_is_active_at_once() -> None:
    """And its source demanded."""
    node = Node()
    node.source("lamp", (3, 4))
    node.subscriber("ann", (0, 0))
    assert node.subscribe("p", "ann", NEAREST) == [
        Bound("p", "lamp", 3),
        StateChanged("p", SubscriptionState.ACTIVE, None, 3),
        SourceDemanded("lamp", 3),
    ]


def test_without_a_qualifying_source_the_state_is_start() -> None:
    """With the reason."""
    node = Node()
    node.source("bell", (3, 4), context="noise")
    node.subscriber("ann", (0, 0))
    why = "no source with &context = light is registered"
    assert node.subscribe("p", "ann", LIGHT) == [StateChanged("p", SubscriptionState.START, why, 3)]


def test_a_subscription_joins_the_first_source_that_qualifies() -> None:
    """From state start."""
    node = Node()
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", LIGHT)
    effects = node.source("lamp", (1, 1), context="light")
    assert effects == [
        Bound("p", "lamp", 3),
        StateChanged("p", SubscriptionState.ACTIVE, None, 3),
        SourceDemanded("lamp", 3),
    ]


def test_a_subscription_is_inactive_while_its_source_is_out_of_reach() -> None:
    """Until one is within the radius again."""
    node = Node()
    node.source("lamp", (0, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", IN_REACH)
    assert node.move("lamp", 31) == [
        Unbound("p", "lamp", 4),
        StateChanged("p", SubscriptionState.INACTIVE, "the only source is not within 30 m", 4),
        SourceIdle("lamp", 4),
    ]
    assert node.move("lamp", 30) == [
        Bound("p", "lamp", 5),
        StateChanged("p", SubscriptionState.ACTIVE, None, 5),
        SourceDemanded("lamp", 5),
    ]


def test_a_change_of_source_keeps_the_state_active() -> None:
    """Demand changes with it."""
    node = Node()
    node.source("a", (0, 0))
    node.source("b", (10, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("p", "ann", NEAREST)
    assert node.move("ann", 9) == [
        Unbound("p", "a", 5),
        Bound("p", "b", 5),
        SourceIdle("a", 5),
        SourceDemanded("b", 5),
    ]


def test_a_source_is_demanded_until_its_last_binding_ends() -> None:
    """Other bindings keep it demanded."""
    node = Node()
    node.source("a", (0, 0))
    for id in ("ann", "bob"):
        node.subscriber(id, (0, 0))
        node.subscribe(f"p-{id}", id, IN_REACH)
    assert not any(isinstance(effect, SourceIdle) for effect in node.move("ann", 99))
    assert SourceIdle("a", 7) in node.move("bob", 99)


def test_a_nearer_source_replaces_the_current_one() -> None:
    """Although nobody has moved; also after it is removed again."""
    node = Node()
    node.source("a", (5, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    node.source("b", (1, 0))
    assert node.sources("p") == ("b",)
    node.tell(SourceRemoved("b"))
    assert node.sources("p") == ("a",)


def test_a_change_of_attributes_changes_bindings() -> None:
    """Sources start and stop to qualify."""
    node = Node()
    node.source("a", (1, 0), context="light")
    node.source("b", (2, 0), context="noise")
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", LIGHT)
    node.tell(SourceChanged("a", {"context": "noise"}))
    assert (node.sources("p"), node.states()["p"]) == ((), "inactive")
    node.tell(SourceChanged("b", {"context": "light"}))
    assert (node.sources("p"), node.states()["p"]) == (("b",), "active")


def test_a_source_without_a_position_does_not_qualify() -> None:
    """It does from its first position on."""
    node = Node()
    node.source("lamp")
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    assert node.states() == {"p": "start"}
    node.move("lamp", 700)
    assert node.sources("p") == ("lamp",)


def test_the_best_of_several_first_positions_is_bound() -> None:
    """And no other one in between."""
    node = Node()
    node.source("a")
    node.source("b")
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    effects = node.binder.handle_moves(["a", "b"], [9, 1], [0, 0], [4, 4], 5)
    assert effects == [Bound("p", "b", 5), StateChanged("p", SubscriptionState.ACTIVE, None, 5), SourceDemanded("b", 5)]


def test_only_net_changes_are_reported() -> None:
    """When a batch moves one source away and gives another its first position."""
    node = Node()
    for id, x in (("a", 1.0), ("b", 5.0)):
        node.source(id, (x, 0))
    node.source("c")
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    effects = node.binder.handle_moves(["a", "c"], [99, 2], [0, 0], [5, 5], 6)
    assert effects == [Unbound("p", "a", 6), Bound("p", "c", 6), SourceIdle("a", 6), SourceDemanded("c", 6)]


def test_a_subscriber_without_a_position_is_not_bound() -> None:
    """Its subscription waits in state start."""
    node = Node()
    node.source("lamp", (0, 0))
    node.subscriber("ann")
    why = "the position of ann is not known"
    assert node.subscribe("p", "ann", NEAREST) == [StateChanged("p", SubscriptionState.START, why, 3)]
    assert Bound("p", "lamp", 4) in node.move("ann", 5)


def test_unsubscribing_ends_bindings_and_agent() -> None:
    """With a final state."""
    node = Node()
    node.source("a", (0, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", NEAREST)
    assert node.tell(Unsubscribed("p")) == [
        Unbound("p", "a", 4),
        StateChanged("p", SubscriptionState.STOP, "it was removed", 4),
        SourceIdle("a", 4),
    ]
    assert node.binder.agents() == []


def test_nearest_k_binds_up_to_k_sources() -> None:
    """One effect for each; one source is enough to be active."""
    node = Node()
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", "Select Where &location in nearest(2)")
    node.source("a", (1, 0))
    node.source("b", (2, 0))
    assert node.sources("p") == ("a", "b")
    assert node.source("c", (0, 0)) == [
        Unbound("p", "b", 5),
        Bound("p", "c", 5),
        SourceIdle("b", 5),
        SourceDemanded("c", 5),
    ]


def test_anyof_prefers_demanded_sources() -> None:
    """The one with the most bindings, then the lower id; and it keeps what it has."""
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


def test_one_agent_serves_all_subscriptions_with_an_expression() -> None:
    """Each is bound to its own nearest source."""
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
    """Section 6.1: on the stage the central sensor, elsewhere the nearest noise sensor."""
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
    sources = []
    for x in range(30, -1, -1):
        node.move("speaker", x, 5)
        sources.append((node.sources("a"), node.sources("b")))
    assert sources[:11] == [(("A",), ())] * 11
    assert [b for a, b in sources[11:] if a == ()] == [(f"B{max(1, round((x + 2) / 3))}",) for x in range(19, -1, -1)]
    node.move("speaker", 22, 5)
    assert node.states() == {"a": "active", "b": "stop"}
