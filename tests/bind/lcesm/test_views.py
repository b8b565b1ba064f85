from __future__ import annotations

import pytest
from binding import Node, places

from roamcast.bind.lcesm.messages import SourceRemoved, SubscriptionState
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


def test_no_registered_source_with_the_expression(node: Node) -> None:
    """The reason has the source expression."""
    assert why(node, NEAREST) == "no source with &context = light is registered"


def test_no_registered_source(node: Node) -> None:
    """Without a source expression."""
    assert why(node, "Select Where &location in nearest") == "no source is registered"


def test_no_source_with_a_known_position(node: Node) -> None:
    """Although some qualify."""
    node.source("lamp", context="light")
    assert why(node, NEAREST) == "no source with &context = light has a known position"


def test_all_sources_out_of_reach(node: Node) -> None:
    """The reason has their number, but neither their names nor distances: the subscriber is not bound to them."""
    node.source("lamp-7", (61, 0), context="light")
    node.source("lamp-8", (62, 0), context="light")
    node.source("lost", context="light")
    node.source("bell", (20, 0), context="noise")
    assert why(node, IN_REACH) == "none of 2 sources is within 30 m"


def test_the_only_source_out_of_reach(node: Node) -> None:
    """Likewise: distances from three places would tell where it is."""
    node.source("lamp-7", (50.01, 0), context="light")
    assert why(node, IN_REACH) == "the only source is not within 30 m"


def test_a_subscriber_without_a_position(node: Node) -> None:
    """Nothing can be near."""
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
def test_stopped_by_life_control(node: Node, life: str, expected: str) -> None:
    """The reason has the part that does not hold."""
    assert why(node, f"{NEAREST} Life-control {life}") == expected


def test_stopped_without_a_position(node: Node) -> None:
    """A test of the location needs one."""
    node.subscriber("bob")
    node.subscribe("p", "bob", f"{NEAREST} Life-control #location in room A")
    assert node.binder.status("p").why == "the position of bob is not known"


def test_the_status_of_a_subscription(node: Node) -> None:
    """All fields."""
    node.source("lamp", (0, 0), context="light")
    node.subscribe("p", "ann", "select where &context=light and &location in nearest on @>5")
    text = "Select Where &context = light and &location in nearest\nOn @ > 5"
    assert node.binder.status("p") == SubscriptionStatus(
        "p", "ann", text, "bind", SubscriptionState.ACTIVE, ("lamp",), 3, None
    )


def test_since_is_the_last_change_of_state_or_sources(node: Node) -> None:
    """Moves without a change do not count."""
    node.source("a", (0, 0), context="light")
    node.subscribe("p", "ann", NEAREST)
    node.move("ann", 19)
    assert node.binder.status("p").since == 3
    node.source("b", (18, 0), context="light")
    assert node.binder.status("p").since == 5


def test_the_status_of_a_subscriber(node: Node) -> None:
    """With its own subscriptions."""
    node.subscribe("p", "ann", NEAREST)
    expected = EntityStatus("ann", "subscriber", {"role": "guest"}, Position("ann", 20, 0, 0), ("p",))
    assert node.binder.entity("ann") == expected


def test_the_status_of_a_source(node: Node) -> None:
    """With the subscriptions bound to it."""
    node.source("lamp", (1, 2), context="light")
    node.subscribe("q", "ann", NEAREST)
    node.subscribe("p", "ann", NEAREST)
    position = Position("lamp", 1, 2, 1)
    assert node.binder.entity("lamp") == EntityStatus("lamp", "source", {"context": "light"}, position, ("p", "q"))


def test_the_status_of_an_unknown_entity_raises(node: Node) -> None:
    """With its id in the message."""
    with pytest.raises(NotFoundError, match="unknown entity 'eve'"):
        node.binder.entity("eve")


def test_the_status_of_agents(node: Node) -> None:
    """Expression, number of sources, and subscriptions by state."""
    node.source("lamp", (20, 0), context="light")
    node.subscriber("bob", (99, 0))
    node.subscribe("q", "bob", IN_REACH)
    node.subscribe("p", "ann", IN_REACH)
    expression = "Select anyof() Where &context = light and &location in rang:loc(30)"
    assert node.binder.agents() == [AgentStatus(expression, 1, ("p", "q"), ("p",), ())]
    node.tell(SourceRemoved("lamp"))
    assert node.binder.agents() == [AgentStatus(expression, 0, ("p", "q"), (), ("p",))]
