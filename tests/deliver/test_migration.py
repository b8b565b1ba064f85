"""Mailboxes that follow their subscribers."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, Post, left, served

from roamcast.deliver.mailbox import START
from roamcast.deliver.messages import AddressUpdate, ChunkReceipt, LocationReply, MailboxChunk, MailboxClaim
from roamcast.deliver.messages import LetterBundle as PostMessage
from roamcast.deliver.port import Bookkeeping
from roamcast.deliver.requests import ArrivalRefused, Arrive, Arrived, Departed, Deposit, Pull, Register, Remove
from roamcast.errors import ElsewhereError, InputError
from roamcast.model import Letter


def letters(*numbers: int, receiver: str = ANN) -> Deposit:
    return Deposit(tuple(Letter(receiver, "pipeline", number, str(number)) for number in numbers))


@pytest.fixture
def post() -> Post:
    post = Post()
    post.register(ANN, BEN, EVE)
    return post


def test_a_mailbox_follows_its_subscriber(post: Post) -> None:
    """All letters, read or not, with their places; the old mailbox is gone, the home knows."""
    post.tell("north", letters(1, 2, 3, 5))
    post.acknowledge("north", ANN, 1)
    post.arrive("south", ANN, 2, "north")
    post.carry()
    assert [(filed.offset, filed.letter.number) for filed in post.pull("south", ANN)] == [(2, 2), (3, 3)]
    assert (served(post, ANN), left(post, ANN)) == ([("south", 2)], ["south"])
    home = post.stores["north"].last_known(ANN)
    assert (home.office, home.epoch) == ("south", 2)
    post.tell("south", letters(4))
    assert [filed.offset for filed in post.pull("south", ANN)] == [2, 3, 4, 5]


def test_arriving_is_told_when_the_mailbox_is_there(post: Post) -> None:
    """The new office says so to the subscriber, the old one to whoever still waits there."""
    post.arrive("south", ANN, 2, "north")
    assert ("south", Arrived(ANN, 2)) not in post.heard
    post.carry()
    assert ("south", Arrived(ANN, 2)) in post.heard
    assert ("north", Departed(ANN, "south", 2)) in post.heard


def test_what_was_received_travels_with_the_mailbox(post: Post) -> None:
    """A letter that comes again at the new office is dropped, though it was acknowledged at the old one."""
    post.tell("north", letters(1, 2))
    post.acknowledge("north", ANN, 2)
    post.arrive("south", ANN)
    post.carry()
    post.tell("south", letters(1, 2, 3))
    assert post.bodies("south", ANN) == ["3"]


def test_numbers_of_letters_sent_travel_with_the_mailbox(post: Post) -> None:
    """The first letter from the new office follows the last from the old one."""
    post.send("north", ANN, BEN, "one")
    post.arrive("west", ANN)
    post.carry()
    post.send("west", ANN, BEN, "two")
    post.carry()
    assert post.bodies("south", BEN) == ["one", "two"]


def test_letters_are_read_while_the_rest_is_handed_over(post: Post) -> None:
    """After the first portion its letters can be pulled; those to come can be acknowledged too, and stay away."""
    post.tell("north", letters(*range(1, 8)))
    post.arrive("south", ANN)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    assert post.bodies("south", ANN) == ["1", "2"]
    post.acknowledge("south", ANN, 5)
    assert post.bodies("south", ANN) == []
    post.ring("north")
    post.carry()
    assert post.bodies("south", ANN) == ["6", "7"]


def test_nothing_new_is_taken_until_everything_is_there(post: Post) -> None:
    """A letter that comes between two portions stays with its sender, and goes behind all that was there before."""
    post.tell("north", letters(*range(1, 6)))
    post.arrive("south", ANN)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.tell("south", PostMessage(ANN, (Letter(ANN, "other", 1, "new"),), "west", 2))
    assert not post.wires
    post.send("south", BEN, ANN, "from here")
    post.ring("north")
    post.carry()
    assert post.bodies("south", ANN) == ["1", "2", "3", "4", "5", "from here"]


def test_the_old_mailbox_stays_until_the_new_one_has_everything(post: Post) -> None:
    """Whatever is lost on the way is sent again, and each portion is taken once."""
    post.tell("north", letters(*range(1, 6), 7))
    post.arrive("south", ANN)
    for lost in (MailboxClaim, MailboxChunk, ChunkReceipt, MailboxChunk, ChunkReceipt, ChunkReceipt):
        post.carry(lambda message, lost=lost: not isinstance(message, lost))
        assert "north" in left(post, ANN)
        for domain in post.offices:
            post.ring(domain)
    post.carry()
    assert left(post, ANN) == ["south"]
    assert post.bodies("south", ANN) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("crashed", ["north", "south"])
def test_a_hand_over_goes_on_after_a_crash(post: Post, crashed: str) -> None:
    """Of either office, in the middle of it."""
    post.tell("north", letters(*range(1, 8)))
    post.arrive("south", ANN)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.restart(crashed)
    for domain in ("south", "north"):
        post.ring(domain)
    post.carry()
    assert (left(post, ANN), len(post.pull("south", ANN))) == (["south"], 7)


def test_a_claim_goes_on_after_a_crash(post: Post) -> None:
    """The subscriber need not ask again."""
    post.arrive("south", ANN)
    post.lose()
    post.restart("south")
    post.ring("south")
    post.carry()
    assert served(post, ANN) == [("south", 2)]


def test_there_and_back_again(post: Post) -> None:
    """A to B to A, with letters all the while; places go on, and nothing is left at B."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2)
    post.carry()
    post.tell("south", letters(2))
    post.arrive("north", ANN, 3)
    post.carry()
    post.tell("south", letters(3))
    post.carry()
    assert [(filed.offset, filed.letter.number) for filed in post.pull("north", ANN)] == [(1, 1), (2, 2), (3, 3)]
    assert (served(post, ANN), left(post, ANN)) == ([("north", 3)], ["north"])


def test_back_before_the_first_hand_over_is_known_to_be_done(post: Post) -> None:
    """The last answer of B is lost; that the mailbox comes back proves that B had everything."""
    post.tell("north", letters(1, 2))
    post.arrive("south", ANN, 2)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    assert left(post, ANN) == ["north", "south"]
    post.arrive("north", ANN, 3, "south")
    post.carry()
    assert (served(post, ANN), left(post, ANN)) == ([("north", 3)], ["north"])
    assert post.bodies("north", ANN) == ["1", "2"]


def test_a_second_move_during_the_first(post: Post) -> None:
    """C asks A, is sent to B, and gets the mailbox from B when B has it."""
    post.tell("north", letters(*range(1, 6)))
    post.arrive("south", ANN, 2, "north")
    post.carry(lambda message: not isinstance(message, MailboxChunk))
    post.arrive("west", ANN, 3, "north")
    post.carry(lambda message: not isinstance(message, MailboxChunk))
    for _ in range(3):
        for domain in post.offices:
            post.ring(domain)
        post.carry()
    assert (served(post, ANN), left(post, ANN)) == ([("west", 3)], ["west"])
    assert post.bodies("west", ANN) == ["1", "2", "3", "4", "5"]


def test_a_mailbox_that_is_not_all_there_is_not_given_away(post: Post) -> None:
    """A claim between two portions is left alone."""
    post.tell("north", letters(*range(1, 6)))
    post.arrive("south", ANN, 2)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.tell("south", MailboxClaim(ANN, 3, "west", ""))
    assert not post.wires
    assert served(post, ANN) == [("south", 2)]


def test_who_thinks_better_of_it_and_stays_makes_the_claim_void(post: Post) -> None:
    """Arriving where it is still served takes a new epoch; the claim for the earlier one comes to nothing."""
    post.arrive("south", ANN, 2, "north")
    claim = post.only(MailboxClaim)
    post.lose()
    post.arrive("north", ANN, 3)
    post.tell("north", claim)
    assert served(post, ANN) == [("north", 3)]
    post.carry()
    assert ("south", ArrivalRefused(ANN, "north", 3)) in post.heard
    assert post.stores["south"].pending_claim(ANN) is None


def test_of_two_arrivals_in_one_epoch_one_wins(post: Post) -> None:
    """The other is told, and may arrive in a later one."""
    post.arrive("south", ANN, 2, "north")
    post.arrive("west", ANN, 2, "north")
    post.carry()
    assert served(post, ANN) == [("south", 2)]
    assert ("west", ArrivalRefused(ANN, "south", 2)) in post.heard
    post.arrive("west", ANN, 3)
    post.carry()
    assert served(post, ANN) == [("west", 3)]


def test_late_messages_of_an_earlier_epoch_change_nothing(post: Post) -> None:
    """Claims and portions of a stay that is over are answered, not acted on."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2, "north")
    claim = post.only(MailboxClaim)
    post.tell("north", claim)
    portion = post.only(MailboxChunk)
    post.carry()
    post.arrive("west", ANN, 3)
    post.carry()
    post.tell("south", portion)
    assert post.only(ChunkReceipt) == ChunkReceipt(ANN, 2, START, complete=True)
    post.lose()
    post.tell("west", claim)
    assert post.only(LocationReply) == LocationReply(ANN, "west", 3)
    assert served(post, ANN) == [("west", 3)]


def test_a_portion_that_was_not_claimed_is_not_taken(post: Post) -> None:
    """An office cannot be made to serve somebody who is not there."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2, "north")
    post.tell("north", post.only(MailboxClaim))
    portion = post.only(MailboxChunk)
    post.lose()
    post.tell("west", portion)
    assert left(post, ANN) == ["north"]


def test_hearsay_does_not_make_a_mailbox_past_that_is_on_its_way(post: Post) -> None:
    """Somebody says that the subscriber is elsewhere in a later epoch: the mailbox is taken all the same."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2, "north")
    post.tell("north", post.only(MailboxClaim))
    portion = post.only(MailboxChunk)
    post.lose()
    post.tell("south", AddressUpdate(ANN, "west", 99, friend=True))
    post.lose()
    post.tell("south", portion)
    post.carry()
    assert (served(post, ANN), left(post, ANN)) == ([("south", 2)], ["south"])
    assert post.bodies("south", ANN) == ["1"]


def test_a_portion_of_who_was_not_asked_for_the_mailbox_is_not_taken(post: Post) -> None:
    """Another office cannot slip in a mailbox that it has made up; the right one is taken when it comes."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2, "north")
    post.tell("south", MailboxChunk(ANN, 2, "west", START, (), True, Bookkeeping()))
    assert served(post, ANN) == [("north", 1)]
    post.carry()
    assert (served(post, ANN), post.bodies("south", ANN)) == ([("south", 2)], ["1"])


def test_a_hand_over_is_answered_after_its_subscriber_has_left_for_good(post: Post) -> None:
    """The office that handed the mailbox over lets go of it."""
    post.arrive("south", ANN, 2, "north")
    post.carry()
    post.arrive("north", ANN, 3, "south")
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.tell("north", Remove(ANN))
    post.ring("south")
    post.carry()
    assert left(post, ANN) == []


def test_who_left_is_told_where_it_is(post: Post) -> None:
    """Pulling and acknowledging at the old office name the new one."""
    post.arrive("south", ANN, 2)
    post.carry()
    with pytest.raises(ElsewhereError) as caught:
        post.tell("north", Pull(ANN, 1))
    assert (caught.value.office, caught.value.epoch) == ("south", 2)


def test_registering_again_is_harmless(post: Post) -> None:
    """At home it is answered; once the subscriber has left, with where it is."""
    post.tell("north", letters(1))
    assert post.tell("north", Register(ANN)) == [Arrived(ANN, 1)]
    assert post.bodies("north", ANN) == ["1"]
    post.arrive("south", ANN)
    post.carry()
    with pytest.raises(ElsewhereError):
        post.tell("north", Register(ANN))


def test_names_are_registered_at_their_home_only(post: Post) -> None:
    """And must be names."""
    with pytest.raises(InputError):
        post.tell("south", Register(ANN))
    with pytest.raises(InputError):
        post.tell("south", Register("ann"))


def test_the_warrant_goes_with_the_claim(post: Post) -> None:
    """As the subscriber gave it, also after a crash."""
    post.tell("south", Arrive(ANN, 2, "north", "signed"))
    assert post.only(MailboxClaim).move_proof == "signed"
    post.lose()
    post.restart("south")
    post.ring("south")
    assert post.only(MailboxClaim).move_proof == "signed"


def test_the_home_is_told_until_it_knows(post: Post) -> None:
    """Also after a crash of the office that tells."""
    post.arrive("south", EVE, 2)
    post.carry(lambda message: not isinstance(message, AddressUpdate))
    post.arrive("north", EVE, 3)
    post.carry(lambda message: not isinstance(message, AddressUpdate))
    assert post.stores["west"].last_known(EVE).epoch == 2
    post.restart("north")
    post.ring("north")
    post.carry()
    assert post.stores["west"].last_known(EVE).office == "north"
