"""Homes, address books and friend domains."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, PostNetwork

from roamcast.deliver.messages import AddressUpdate, AddressUpdateReceipt, BundleReceipt, LocationQuery, LocationReply
from roamcast.deliver.requests import Deposit
from roamcast.model import Letter


@pytest.fixture
def post() -> PostNetwork:
    post = PostNetwork(("north", "south", "west", "east"))
    post.register(ANN, BEN, EVE)
    return post


def friends(post: PostNetwork, name: str) -> set[str]:
    (tenure,) = [tenure for store in post.stores.values() for tenure in store.tenures([name]).values() if tenure.active]
    return set(tenure.friends)


def listed(post: PostNetwork, name: str) -> set[str]:
    """The domains that have a subscriber in their address book."""
    rows = ((domain, store.last_known(name)) for domain, store in post.stores.items())
    return {domain for domain, row in rows if row is not None and row.acquaintance}


def test_exchange_makes_both_sides_acquainted(post: PostNetwork) -> None:
    """AddressAdd: each domain lists the other's subscriber and becomes its friend."""
    post.send("north", ANN, BEN, "hello")
    post.carry()
    assert friends(post, ANN) == listed(post, ANN) == {"south"}
    assert friends(post, BEN) == listed(post, BEN) == {"north"}


def test_subscribers_of_one_domain_are_not_acquaintances(post: PostNetwork) -> None:
    """Condition 1 of definition 5."""
    post.register("north.pier.ida")
    post.send("north", ANN, "north.pier.ida", "hello")
    post.carry()
    assert friends(post, ANN) == friends(post, "north.pier.ida") == listed(post, ANN) == set()


def test_friends_and_home_are_notified_of_a_migration(post: PostNetwork) -> None:
    """AddressUpdate and UdtAdr_Dom: one message to each."""
    for domain, name in (("south", BEN), ("west", EVE)):
        post.send(domain, name, ANN, "hello")
        post.carry()
    notified: list[tuple[str, bool]] = []
    post.arrive("east", ANN)
    while post.in_flight:
        _, to, message = post.in_flight.popleft()
        if isinstance(message, AddressUpdate):
            notified.append((to, message.friend))
        post.tell(to, message)
    assert sorted(notified) == [("north", False), ("south", True), ("west", True)]
    for domain in ("north", "south", "west"):
        row = post.stores[domain].last_known(ANN)
        assert (row.office, row.epoch) == ("east", 2)


def test_visited_friend_keeps_its_address_book_entry(post: PostNetwork) -> None:
    """The paper's CurrentPO = 0. The entry stays when the subscriber moves on."""
    post.send("south", BEN, ANN, "hello")
    post.carry()
    post.arrive("south", ANN)
    post.carry()
    assert post.stores["south"].last_known(ANN).office == "south"
    post.arrive("west", ANN)
    post.carry()
    assert friends(post, ANN) == listed(post, ANN) == {"south"}
    assert post.stores["south"].last_known(ANN).office == "west"


def test_friends_move_with_the_mailbox(post: PostNetwork) -> None:
    """They are still notified after two moves."""
    post.send("south", BEN, ANN, "hello")
    post.carry()
    for domain in ("west", "east"):
        post.arrive(domain, ANN)
        post.carry()
    assert friends(post, ANN) == {"south"}
    assert post.stores["south"].last_known(ANN).office == "east"


def test_address_update_of_an_earlier_epoch_is_ignored(post: PostNetwork) -> None:
    """Friends and home send a receipt, but change nothing."""
    post.send("south", BEN, ANN, "hello")
    post.carry()
    post.arrive("west", ANN)
    late: list[tuple[str, AddressUpdate]] = []
    while post.in_flight:
        _, to, message = post.in_flight.popleft()
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


def test_receipt_for_an_earlier_epoch_does_not_count(post: PostNetwork) -> None:
    """The home is notified of epoch 3 although its receipt for epoch 2 arrives meanwhile."""
    post.arrive("west", ANN, 2)
    post.carry(lambda message: not isinstance(message, AddressUpdate | AddressUpdateReceipt))
    post.arrive("west", ANN, 3)
    post.lose()
    post.tell("west", AddressUpdateReceipt(ANN, 2, "north", friend=False))
    post.ring("west")
    post.carry()
    assert post.stores["north"].last_known(ANN).epoch == 3


def test_home_that_becomes_a_friend_is_notified_as_a_friend(post: PostNetwork) -> None:
    """Its receipt as the home does not make the entry in its address book."""
    post.arrive("south", ANN, 2)
    post.carry(lambda message: not isinstance(message, AddressUpdate))
    post.register("north.pier.ida")
    post.send("south", ANN, "north.pier.ida", "hello")
    post.carry(lambda message: not isinstance(message, AddressUpdate))
    post.tell("south", AddressUpdateReceipt(ANN, 2, "north", friend=False))
    post.ring("south")
    post.carry()
    assert friends(post, ANN) == listed(post, ANN) == {"north"}


def test_friend_is_stored_before_it_is_notified(post: PostNetwork) -> None:
    """The receipt for a letter is lost and the mailbox moves on: the new office notifies the domain."""
    post.send("north", ANN, BEN, "hello")
    post.carry(lambda message: not isinstance(message, BundleReceipt))
    assert (friends(post, BEN), listed(post, BEN)) == ({"north"}, set())
    post.arrive("east", BEN)
    post.carry()
    assert listed(post, BEN) == {"north"}


def test_duplicate_letter_makes_no_friend(post: PostNetwork) -> None:
    """Its sender's office no longer waits for a receipt, which might be lost."""
    deposit = Deposit((Letter(BEN, "pipeline", 1, "x"),))
    post.tell("south", deposit)
    post.tell("north", deposit)
    post.carry(lambda message: not isinstance(message, BundleReceipt) or not message.friend)
    assert friends(post, BEN) == listed(post, BEN) == set()


def test_home_answers_queries_for_its_own_subscribers_only(post: PostNetwork) -> None:
    post.tell("north", LocationQuery(ANN, "east"))
    assert post.only(LocationReply) == LocationReply(ANN, "north", 1)
    post.lose()
    post.tell("north", LocationQuery("north.pier.nobody", "east"))
    assert not post.in_flight


def test_unexpected_location_reply_is_not_stored(post: PostNetwork) -> None:
    """Neither on disk nor in memory."""
    post.tell("east", LocationReply(ANN, "south", 7))
    assert post.stores["east"].last_known(ANN) is None
    post.tell("east", Deposit((Letter(ANN, "pipeline", 1, "x"),)))
    assert isinstance(post.only(LocationQuery), LocationQuery)
