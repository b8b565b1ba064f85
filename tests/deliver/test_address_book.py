"""Homes, address books and friend domains."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, Post

from roamcast.deliver.messages import AddressUpdate, AddressUpdateReceipt, BundleReceipt, LocationQuery, LocationReply
from roamcast.deliver.requests import Deposit
from roamcast.model import Letter


@pytest.fixture
def post() -> Post:
    post = Post(("north", "south", "west", "east"))
    post.register(ANN, BEN, EVE)
    return post


def friends(post: Post, name: str) -> set[str]:
    (tenure,) = [tenure for store in post.stores.values() for tenure in store.tenures([name]).values() if tenure.active]
    return set(tenure.friends)


def listed(post: Post, name: str) -> set[str]:
    """The domains whose address book a subscriber is in."""
    rows = ((domain, store.last_known(name)) for domain, store in post.stores.items())
    return {domain for domain, row in rows if row is not None and row.acquaintance}


def test_an_exchange_makes_each_side_an_acquaintance_of_the_other(post: Post) -> None:
    """AddressAdd: each domain's book has the other's subscriber, whose friend that domain then is."""
    post.send("north", ANN, BEN, "hello")
    post.carry()
    assert friends(post, ANN) == listed(post, ANN) == {"south"}
    assert friends(post, BEN) == listed(post, BEN) == {"north"}


def test_in_one_domain_nobody_is_an_acquaintance(post: Post) -> None:
    """Condition 1 of definition 5."""
    post.register("north.pier.ida")
    post.send("north", ANN, "north.pier.ida", "hello")
    post.carry()
    assert friends(post, ANN) == friends(post, "north.pier.ida") == listed(post, ANN) == set()


def test_all_friends_and_the_home_are_told_of_a_migration(post: Post) -> None:
    """AddressUpdate and UdtAdr_Dom: one message to each."""
    for domain, name in (("south", BEN), ("west", EVE)):
        post.send(domain, name, ANN, "hello")
        post.carry()
    told: list[tuple[str, bool]] = []
    post.arrive("east", ANN)
    while post.wires:
        _, to, message = post.wires.popleft()
        if isinstance(message, AddressUpdate):
            told.append((to, message.friend))
        post.tell(to, message)
    assert sorted(told) == [("north", False), ("south", True), ("west", True)]
    for domain in ("north", "south", "west"):
        row = post.stores[domain].last_known(ANN)
        assert (row.office, row.epoch) == ("east", 2)


def test_a_friend_that_is_visited_has_its_acquaintance_local(post: Post) -> None:
    """The paper's CurrentPO = 0; the entry stays when the subscriber goes on."""
    post.send("south", BEN, ANN, "hello")
    post.carry()
    post.arrive("south", ANN)
    post.carry()
    assert post.stores["south"].last_known(ANN).office == "south"
    post.arrive("west", ANN)
    post.carry()
    assert friends(post, ANN) == listed(post, ANN) == {"south"}
    assert post.stores["south"].last_known(ANN).office == "west"


def test_friends_travel_with_the_mailbox(post: Post) -> None:
    """After two moves they are still told."""
    post.send("south", BEN, ANN, "hello")
    post.carry()
    for domain in ("west", "east"):
        post.arrive(domain, ANN)
        post.carry()
    assert friends(post, ANN) == {"south"}
    assert post.stores["south"].last_known(ANN).office == "east"


def test_late_news_do_not_undo_later_ones(post: Post) -> None:
    """An address update of an earlier epoch is answered and ignored, by friends and by the home."""
    post.send("south", BEN, ANN, "hello")
    post.carry()
    post.arrive("west", ANN)
    late: list[tuple[str, AddressUpdate]] = []
    while post.wires:
        _, to, message = post.wires.popleft()
        if isinstance(message, AddressUpdate):
            late.append((to, message))
        else:
            post.tell(to, message)
    post.arrive("east", ANN)
    post.carry()
    for to, message in late:
        post.tell(to, message)
        assert post.stores[to].last_known(ANN).office == "east"
        assert post.only(AddressUpdateReceipt).epoch == 2
        post.lose()


def test_the_answer_to_an_earlier_update_does_not_count_for_a_later_one(post: Post) -> None:
    """The home is told of epoch 3 although it has answered for epoch 2 meanwhile."""
    post.arrive("west", ANN, 2)
    post.carry(lambda message: not isinstance(message, AddressUpdate | AddressUpdateReceipt))
    post.arrive("west", ANN, 3)
    post.lose()
    post.tell("west", AddressUpdateReceipt(ANN, 2, "north", friend=False))
    post.ring("west")
    post.carry()
    assert post.stores["north"].last_known(ANN).epoch == 3


def test_a_home_that_becomes_a_friend_is_told_as_one(post: Post) -> None:
    """It has answered as the home while it became a friend; that does not make the entry in its book."""
    post.arrive("south", ANN, 2)
    post.carry(lambda message: not isinstance(message, AddressUpdate))
    post.register("north.pier.ida")
    post.send("south", ANN, "north.pier.ida", "hello")
    post.carry(lambda message: not isinstance(message, AddressUpdate))
    post.tell("south", AddressUpdateReceipt(ANN, 2, "north", friend=False))
    post.ring("south")
    post.carry()
    assert friends(post, ANN) == listed(post, ANN) == {"north"}


def test_a_friend_is_a_friend_before_it_is_told_so(post: Post) -> None:
    """The answer to a letter is lost and the mailbox moves on: its new office tells the domain."""
    post.send("north", ANN, BEN, "hello")
    post.carry(lambda message: not isinstance(message, BundleReceipt))
    assert (friends(post, BEN), listed(post, BEN)) == ({"north"}, set())
    post.arrive("east", BEN)
    post.carry()
    assert listed(post, BEN) == {"north"}


def test_a_letter_that_was_had_before_makes_no_friend(post: Post) -> None:
    """Its sender's office no longer waits for the answer, which might be lost."""
    deposit = Deposit((Letter(BEN, "pipeline", 1, "x"),))
    post.tell("south", deposit)
    post.tell("north", deposit)
    post.carry(lambda message: not isinstance(message, BundleReceipt) or not message.friend)
    assert friends(post, BEN) == listed(post, BEN) == set()


def test_homes_are_asked_about_their_own(post: Post) -> None:
    """Who is unknown gets no answer."""
    post.tell("north", LocationQuery(ANN, "east"))
    assert post.only(LocationReply) == LocationReply(ANN, "north", 1)
    post.lose()
    post.tell("north", LocationQuery("north.pier.nobody", "east"))
    assert not post.wires


def test_answers_nobody_waits_for_are_not_kept(post: Post) -> None:
    """Neither on disk nor in mind."""
    post.tell("east", LocationReply(ANN, "south", 7))
    assert post.stores["east"].last_known(ANN) is None
    post.tell("east", Deposit((Letter(ANN, "pipeline", 1, "x"),)))
    assert isinstance(post.only(LocationQuery), LocationQuery)
