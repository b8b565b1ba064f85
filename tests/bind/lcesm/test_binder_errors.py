"""Invalid, late and repeated messages change nothing."""

from __future__ import annotations

import pytest
from binding import Node, query

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    EntityMoved,
    Message,
    SourceChanged,
    SourceRegistered,
    SourceRemoved,
    Subscribed,
    SubscriberChanged,
    SubscriberRegistered,
    SubscriberRemoved,
    Unsubscribed,
)
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC

NEAREST = "Select Where &location in nearest"
LIGHT = "Select Where &context = light and &location in nearest"
IN_REACH = "Select nearof() Where &location in rang:loc(30)"
FIRE = 'Select all() Where &terms has ("fire")'


@pytest.mark.parametrize(
    "message",
    [
        SourceChanged("nobody", {}),
        SourceRemoved("nobody"),
        SourceRemoved("ann"),
        SubscriberChanged("nobody", {}),
        SubscriberRemoved("nobody"),
        SubscriberRemoved("lamp"),
        EntityMoved("nobody", 0, 0, 1),
        Subscribed("q", "nobody", query(NEAREST)),
        Subscribed("q", "lamp", query(NEAREST)),
        Unsubscribed("nothing"),
    ],
    ids=repr,
)
def test_a_message_about_an_unknown_id_raises(message: Message) -> None:
    """And changes nothing."""
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
def test_an_id_in_use_raises(message: Message) -> None:
    """If it is registered again with another meaning."""
    node = Node()
    node.source("lamp", context="light")
    node.subscriber("ann", role=1)
    node.subscribe("p", "ann", NEAREST)
    with pytest.raises(ConflictError, match="in use"):
        node.tell(message)


def test_a_repeated_message_has_no_effects() -> None:
    """If it is exactly the same."""
    node = Node()
    messages: list[Message] = [
        SourceRegistered("lamp", {"context": "light"}, Position("lamp", 1, 1, 0)),
        SubscriberRegistered("ann", {}, Position("ann", 0, 0, 0)),
        Subscribed("p", "ann", query(LIGHT)),
        EntityMoved("ann", 5, 5, 3),
        SourceChanged("lamp", {"context": "light"}),
        SubscriberChanged("ann", {}),
    ]
    for message in messages:
        node.tell(message)
        status = node.binder.statuses()
        assert node.tell(message) == []
        assert node.binder.statuses() == status


def test_registering_again_with_a_newer_position_is_a_move() -> None:
    """With an older one it is not."""
    node = Node()
    node.subscriber("ann", (0, 0))
    node.tell(SubscriberRegistered("ann", {}, Position("ann", 7, 7, 5)))
    node.tell(SubscriberRegistered("ann", {}, Position("ann", 1, 1, 4)))
    assert node.binder.entity("ann").position == Position("ann", 7, 7, 5)


def test_an_older_move_is_ignored() -> None:
    """Clocks may go back."""
    node = Node()
    node.source("a", (0, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("p", "ann", IN_REACH)
    node.tell(EntityMoved("a", 2, 0, 100))
    assert node.tell(EntityMoved("a", 999, 0, 99)) == []
    assert node.binder.entity("a").position == Position("a", 2, 0, 100)


def test_effects_never_go_back_in_time() -> None:
    """If the clock of the node goes back they keep the latest time."""
    binder = Binder(GEOGRAPHIC)
    binder.handle(SubscriberRegistered("ann", {}), 100)
    assert binder.handle(Subscribed("p", "ann", query(FIRE)), 50)[0].at == 100


@pytest.mark.parametrize(
    "message",
    [
        SourceRegistered("a", {}, Position("a", 0, 91, 0)),
        SubscriberRegistered("b", {}, Position("b", 181, 0, 0)),
        EntityMoved("ann", float("nan"), 0, 1),
    ],
    ids=repr,
)
def test_a_position_outside_the_space_raises(message: Message) -> None:
    """And registers nobody."""
    node = Node(space=GEOGRAPHIC)
    node.subscriber("ann")
    with pytest.raises(InputError):
        node.tell(message)
    assert node.binder.entity("ann").position is None
    for id in "ab":
        with pytest.raises(NotFoundError):
            node.binder.entity(id)


def test_a_batch_of_moves_is_applied_completely_or_not_at_all() -> None:
    """One unknown entity is enough."""
    node = Node()
    node.source("a", (0, 0))
    with pytest.raises(NotFoundError):
        node.binder.handle_moves(["a", "nobody"], [1, 1], [1, 1], [1, 1], 2)
    assert node.binder.entity("a").position == Position("a", 0, 0, 0)
