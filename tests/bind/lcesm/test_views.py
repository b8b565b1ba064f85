from __future__ import annotations

import pytest
from binding import Node, places

from roamcast.bind.lcesm.messages import SourceRemoved
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.bind.lcesm.views import AgentStatus, EntityStatus, SubscriptionStatus
from roamcast.errors import NotFoundError
from roamcast.model import Position

NEAREST = "Select Where &context = light and &location in nearest"
IN_REACH = "Select anyof() Where &context = light and &location in rang:loc(30)"


def why(node: Node, text: str) -> str | None:
    node.subscribe("p", "ann", text)
    return node.binder.status("p").why


@pytest.fixture
def node() -> Node:
    made = Node(places(**{"room A": (0, 0, 10, 10)}))
    made.subscriber("ann", (20, 0), role="guest")
    return made


def test_no_source(node: Node) -> None:
    """The expression that nobody satisfies is named."""
    assert why(node, NEAREST) == "no source with &context = light is registered"


def test_no_source_at_all(node: Node) -> None:
    """Without an expression there is nothing to name."""
    assert why(node, "Select Where &location in nearest") == "no source is registered"


def test_no_positions(node: Node) -> None:
    """Sources that qualify but are nobody knows where are spoken of."""
    node.source("lamp", context="light")
    assert why(node, NEAREST) == "no position is known of any source with &context = light"


def test_out_of_reach(node: Node) -> None:
    """How many there are, and how far the nearest is, rounded up."""
    node.source("lamp-7", (61, 0), context="light")
    node.source("lamp-8", (62, 0), context="light")
    node.source("lost", context="light")
    node.source("bell", (20, 0), context="noise")
    expected = "none of 2 sources is within 30 m; the nearest, lamp-7, is 41 m away"
    assert why(node, IN_REACH) == expected


def test_the_only_one_is_out_of_reach(node: Node) -> None:
    """What is just out of reach does not read as if it were within."""
    node.source("lamp-7", (50.01, 0), context="light")
    assert why(node, IN_REACH) == "the only source, lamp-7, is 30.1 m away, not within 30 m"


def test_the_subscriber_is_nowhere(node: Node) -> None:
    """Without a position nothing can be near."""
    node.subscriber("bob")
    node.subscribe("p", "bob", NEAREST)
    assert node.binder.status("p").why == "the position of bob is not known"


@pytest.mark.parametrize(
    ("life", "expected"),
    [
        ("#location in room A", "ann is not in room A"),
        ("#location in box(0, 0, 1, 1)", "ann is not in box(0, 0, 1, 1)"),
        ("#location not in circle(20, 0, 5)", "ann is in circle(20, 0, 5)"),
        ("#role = guard", "#role = guard does not hold for ann"),
        ("#role = guest and #location in room A", "ann is not in room A"),
        ("#role = guard or #location in room A", "#role = guard or #location in room A does not hold for ann"),
    ],
)
def test_stopped(node: Node, life: str, expected: str) -> None:
    """The part of life-control that does not hold is named."""
    assert why(node, f"{NEAREST} Life-control {life}") == expected


def test_stopped_while_nowhere(node: Node) -> None:
    """A place cannot be left or entered by somebody whose position is not known."""
    node.subscriber("bob")
    node.subscribe("p", "bob", f"{NEAREST} Life-control #location in room A")
    assert node.binder.status("p").why == "the position of bob is not known"


def test_status(node: Node) -> None:
    """All that there is to say of a subscription."""
    node.source("lamp", (0, 0), context="light")
    node.subscribe("p", "ann", "select where &context=light and &location in nearest on @>5")
    text = "Select Where &context = light and &location in nearest\nOn @ > 5"
    assert node.binder.status("p") == SubscriptionStatus(
        "p", "ann", text, "bind", SubscriptionState.ACTIVE, ("lamp",), 3, None
    )


def test_since_is_the_last_change_of_state_or_sources(node: Node) -> None:
    """Moves that change nothing do not count; another source does, though the state stays."""
    node.source("a", (0, 0), context="light")
    node.subscribe("p", "ann", NEAREST)
    node.move("ann", 19)
    assert node.binder.status("p").since == 3
    node.source("b", (18, 0), context="light")
    assert node.binder.status("p").since == 5


def test_where_a_subscriber_is(node: Node) -> None:
    """A subscriber has its own subscriptions."""
    node.subscribe("p", "ann", NEAREST)
    expected = EntityStatus("ann", "subscriber", {"role": "guest"}, Position("ann", 20, 0, 0), ("p",))
    assert node.binder.where("ann") == expected


def test_where_a_source_is(node: Node) -> None:
    """A source has the subscriptions that are bound to it."""
    node.source("lamp", (1, 2), context="light")
    node.subscribe("q", "ann", NEAREST)
    node.subscribe("p", "ann", NEAREST)
    position = Position("lamp", 1, 2, 1)
    assert node.binder.where("lamp") == EntityStatus("lamp", "source", {"context": "light"}, position, ("p", "q"))


def test_where_nobody_is(node: Node) -> None:
    """Who is unknown is nowhere."""
    with pytest.raises(NotFoundError, match="no entity 'eve'"):
        node.binder.where("eve")


def test_agents(node: Node) -> None:
    """An agent shows its expression, how many sources qualify, and whom it serves in which state."""
    node.source("lamp", (20, 0), context="light")
    node.subscriber("bob", (99, 0))
    node.subscribe("q", "bob", IN_REACH)
    node.subscribe("p", "ann", IN_REACH)
    expression = "Select anyof() Where &context = light and &location in rang:loc(30)"
    assert node.binder.agents() == [AgentStatus(expression, 1, ("p", "q"), ("p",), ())]
    node.tell(SourceRemoved("lamp"))
    assert node.binder.agents() == [AgentStatus(expression, 0, ("p", "q"), (), ("p",))]
