"""Mailboxes that follow their subscribers."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, PostNetwork, holders, served

from roamcast.deliver.messages import AddressUpdate, ChunkReceipt, LocationReply, MailboxChunk, MailboxClaim
from roamcast.deliver.messages import LetterBundle as PostMessage
from roamcast.deliver.port import START, Bookkeeping
from roamcast.deliver.requests import ArrivalRefused, Arrive, Arrived, Departed, Deposit, Pull, Register, Remove
from roamcast.errors import ElsewhereError, InputError
from roamcast.model import Letter


def letters(*numbers: int, receiver: str = ANN) -> Deposit:
    return Deposit(tuple(Letter(receiver, "pipeline", number, str(number)) for number in numbers))


@pytest.fixture
def post() -> PostNetwork:
    post = PostNetwork()
    post.register(ANN, BEN, EVE)
    return post


def test_mailbox_follows_its_subscriber(post: PostNetwork) -> None:
    """All letters keep their offsets; the old mailbox is dropped and the home is notified."""
    post.tell("north", letters(1, 2, 3, 5))
    post.acknowledge("north", ANN, 1)
    post.arrive("south", ANN, 2, "north")
    post.carry()
    assert [(filed.offset, filed.letter.number) for filed in post.pull("south", ANN)] == [(2, 2), (3, 3)]
    assert (served(post, ANN), holders(post, ANN)) == ([("south", 2)], ["south"])
    home = post.stores["north"].last_known(ANN)
    assert (home.office, home.epoch) == ("south", 2)
    post.tell("south", letters(4))
    assert [filed.offset for filed in post.pull("south", ANN)] == [2, 3, 4, 5]


def test_both_offices_send_notices_of_a_migration(post: PostNetwork) -> None:
    """The new office to the subscriber, the old one to clients that still wait there."""
    post.arrive("south", ANN, 2, "north")
    assert ("south", Arrived(ANN, 2)) not in post.emitted
    post.carry()
    assert ("south", Arrived(ANN, 2)) in post.emitted
    assert ("north", Departed(ANN, "south", 2)) in post.emitted


def test_received_numbers_move_with_the_mailbox(post: PostNetwork) -> None:
    """A duplicate at the new office is dropped, even if the letter was acknowledged at the old one."""
    post.tell("north", letters(1, 2))
    post.acknowledge("north", ANN, 2)
    post.arrive("south", ANN)
    post.carry()
    post.tell("south", letters(1, 2, 3))
    assert post.bodies("south", ANN) == ["3"]


def test_sent_numbers_move_with_the_mailbox(post: PostNetwork) -> None:
    """The first letter from the new office follows the last from the old one."""
    post.send("north", ANN, BEN, "one")
    post.arrive("west", ANN)
    post.carry()
    post.send("west", ANN, BEN, "two")
    post.carry()
    assert post.bodies("south", BEN) == ["one", "two"]


def test_letters_can_be_read_during_the_hand_over(post: PostNetwork) -> None:
    """Letters still to come can be acknowledged too, and are then not stored."""
    post.tell("north", letters(*range(1, 8)))
    post.arrive("south", ANN)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    assert post.bodies("south", ANN) == ["1", "2"]
    post.acknowledge("south", ANN, 5)
    assert post.bodies("south", ANN) == []
    post.ring("north")
    post.carry()
    assert post.bodies("south", ANN) == ["6", "7"]


def test_new_letters_are_accepted_only_after_the_hand_over(post: PostNetwork) -> None:
    """A letter that comes between two chunks stays with its sender, and is filed behind all earlier ones."""
    post.tell("north", letters(*range(1, 6)))
    post.arrive("south", ANN)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.tell("south", PostMessage(ANN, (Letter(ANN, "other", 1, "new"),), "west", 2))
    assert not post.in_flight
    post.send("south", BEN, ANN, "from here")
    post.ring("north")
    post.carry()
    assert post.bodies("south", ANN) == ["1", "2", "3", "4", "5", "from here"]


def test_old_mailbox_stays_until_the_new_one_is_complete(post: PostNetwork) -> None:
    """Lost messages are repeated, and each chunk is stored once."""
    post.tell("north", letters(*range(1, 6), 7))
    post.arrive("south", ANN)
    for lost in (MailboxClaim, MailboxChunk, ChunkReceipt, MailboxChunk, ChunkReceipt, ChunkReceipt):
        post.carry(lambda message, lost=lost: not isinstance(message, lost))
        assert "north" in holders(post, ANN)
        for domain in post.offices:
            post.ring(domain)
    post.carry()
    assert holders(post, ANN) == ["south"]
    assert post.bodies("south", ANN) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("crashed", ["north", "south"])
def test_hand_over_continues_after_a_crash(post: PostNetwork, crashed: str) -> None:
    """Of either office."""
    post.tell("north", letters(*range(1, 8)))
    post.arrive("south", ANN)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.restart(crashed)
    for domain in ("south", "north"):
        post.ring(domain)
    post.carry()
    assert (holders(post, ANN), len(post.pull("south", ANN))) == (["south"], 7)


def test_claim_continues_after_a_crash(post: PostNetwork) -> None:
    """The subscriber need not ask again."""
    post.arrive("south", ANN)
    post.lose()
    post.restart("south")
    post.ring("south")
    post.carry()
    assert served(post, ANN) == [("south", 2)]


def test_mailbox_moves_there_and_back(post: PostNetwork) -> None:
    """With letters all the time. Offsets continue, and nothing is left at the other office."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2)
    post.carry()
    post.tell("south", letters(2))
    post.arrive("north", ANN, 3)
    post.carry()
    post.tell("south", letters(3))
    post.carry()
    assert [(filed.offset, filed.letter.number) for filed in post.pull("north", ANN)] == [(1, 1), (2, 2), (3, 3)]
    assert (served(post, ANN), holders(post, ANN)) == ([("north", 3)], ["north"])


def test_mailbox_returns_before_the_last_receipt_arrived(post: PostNetwork) -> None:
    """That it comes back proves that the other office had everything."""
    post.tell("north", letters(1, 2))
    post.arrive("south", ANN, 2)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    assert holders(post, ANN) == ["north", "south"]
    post.arrive("north", ANN, 3, "south")
    post.carry()
    assert (served(post, ANN), holders(post, ANN)) == ([("north", 3)], ["north"])
    assert post.bodies("north", ANN) == ["1", "2"]


def test_second_move_during_the_first(post: PostNetwork) -> None:
    """The third office asks the first, learns of the second, and gets the mailbox from there."""
    post.tell("north", letters(*range(1, 6)))
    post.arrive("south", ANN, 2, "north")
    post.carry(lambda message: not isinstance(message, MailboxChunk))
    post.arrive("west", ANN, 3, "north")
    post.carry(lambda message: not isinstance(message, MailboxChunk))
    for _ in range(3):
        for domain in post.offices:
            post.ring(domain)
        post.carry()
    assert (served(post, ANN), holders(post, ANN)) == ([("west", 3)], ["west"])
    assert post.bodies("west", ANN) == ["1", "2", "3", "4", "5"]


def test_incomplete_mailbox_is_not_given_away(post: PostNetwork) -> None:
    """A claim between two chunks is ignored."""
    post.tell("north", letters(*range(1, 6)))
    post.arrive("south", ANN, 2)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.tell("south", MailboxClaim(ANN, 3, "west", ""))
    assert not post.in_flight
    assert served(post, ANN) == [("south", 2)]


def test_arrival_at_the_serving_office_voids_pending_claims(post: PostNetwork) -> None:
    """It takes a new epoch; the claim for the earlier one fails."""
    post.arrive("south", ANN, 2, "north")
    claim = post.only(MailboxClaim)
    post.lose()
    post.arrive("north", ANN, 3)
    post.tell("north", claim)
    assert served(post, ANN) == [("north", 3)]
    post.carry()
    assert ("south", ArrivalRefused(ANN, "north", 3)) in post.emitted
    assert post.stores["south"].pending_claim(ANN) is None


def test_one_of_two_arrivals_in_one_epoch_wins(post: PostNetwork) -> None:
    """The other is refused, and may arrive in a later epoch."""
    post.arrive("south", ANN, 2, "north")
    post.arrive("west", ANN, 2, "north")
    post.carry()
    assert served(post, ANN) == [("south", 2)]
    assert ("west", ArrivalRefused(ANN, "south", 2)) in post.emitted
    post.arrive("west", ANN, 3)
    post.carry()
    assert served(post, ANN) == [("west", 3)]


def test_late_claims_and_chunks_change_nothing(post: PostNetwork) -> None:
    """They are answered."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2, "north")
    claim = post.only(MailboxClaim)
    post.tell("north", claim)
    chunk = post.only(MailboxChunk)
    post.carry()
    post.arrive("west", ANN, 3)
    post.carry()
    post.tell("south", chunk)
    assert post.only(ChunkReceipt) == ChunkReceipt(ANN, 2, START, complete=True)
    post.lose()
    post.tell("west", claim)
    assert post.only(LocationReply) == LocationReply(ANN, "west", 3)
    assert served(post, ANN) == [("west", 3)]


def test_unclaimed_chunk_is_ignored(post: PostNetwork) -> None:
    """An office cannot be made to serve an absent subscriber."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2, "north")
    post.tell("north", post.only(MailboxClaim))
    chunk = post.only(MailboxChunk)
    post.lose()
    post.tell("west", chunk)
    assert holders(post, ANN) == ["north"]


def test_reports_of_other_offices_do_not_make_a_chunk_late(post: PostNetwork) -> None:
    """The mailbox is accepted although the subscriber is reported elsewhere in a later epoch."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2, "north")
    post.tell("north", post.only(MailboxClaim))
    chunk = post.only(MailboxChunk)
    post.lose()
    post.tell("south", AddressUpdate(ANN, "west", 99, friend=True))
    post.lose()
    post.tell("south", chunk)
    post.carry()
    assert (served(post, ANN), holders(post, ANN)) == ([("south", 2)], ["south"])
    assert post.bodies("south", ANN) == ["1"]


def test_chunk_from_an_office_that_was_not_asked_is_ignored(post: PostNetwork) -> None:
    """The right mailbox is accepted when it comes."""
    post.tell("north", letters(1))
    post.arrive("south", ANN, 2, "north")
    post.tell("south", MailboxChunk(ANN, 2, "west", START, (), True, Bookkeeping()))
    assert served(post, ANN) == [("north", 1)]
    post.carry()
    assert (served(post, ANN), post.bodies("south", ANN)) == ([("south", 2)], ["1"])


def test_chunk_for_a_removed_subscriber_gets_a_receipt(post: PostNetwork) -> None:
    """The other office can then drop the mailbox."""
    post.arrive("south", ANN, 2, "north")
    post.carry()
    post.arrive("north", ANN, 3, "south")
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.tell("north", Remove(ANN))
    post.ring("south")
    post.carry()
    assert holders(post, ANN) == []


def test_requests_at_the_old_office_name_the_new_one(post: PostNetwork) -> None:
    """Both pull and acknowledge."""
    post.arrive("south", ANN, 2)
    post.carry()
    with pytest.raises(ElsewhereError) as caught:
        post.tell("north", Pull(ANN, 1))
    assert (caught.value.office, caught.value.epoch) == ("south", 2)


def test_register_is_idempotent(post: PostNetwork) -> None:
    """Once the mailbox has moved, it raises ElsewhereError."""
    post.tell("north", letters(1))
    assert post.tell("north", Register(ANN)) == [Arrived(ANN, 1)]
    assert post.bodies("north", ANN) == ["1"]
    post.arrive("south", ANN)
    post.carry()
    with pytest.raises(ElsewhereError):
        post.tell("north", Register(ANN))


def test_register_needs_a_name_of_the_own_domain(post: PostNetwork) -> None:
    with pytest.raises(InputError):
        post.tell("south", Register(ANN))
    with pytest.raises(InputError):
        post.tell("south", Register("ann"))


def test_move_proof_is_sent_with_the_claim(post: PostNetwork) -> None:
    """Unchanged, also after a crash."""
    post.tell("south", Arrive(ANN, 2, "north", "signed"))
    assert post.only(MailboxClaim).move_proof == "signed"
    post.lose()
    post.restart("south")
    post.ring("south")
    assert post.only(MailboxClaim).move_proof == "signed"


def test_home_is_notified_until_it_confirms(post: PostNetwork) -> None:
    """Also after a crash of the notifying office."""
    post.arrive("south", EVE, 2)
    post.carry(lambda message: not isinstance(message, AddressUpdate))
    post.arrive("north", EVE, 3)
    post.carry(lambda message: not isinstance(message, AddressUpdate))
    assert post.stores["west"].last_known(EVE).epoch == 2
    post.restart("north")
    post.ring("north")
    post.carry()
    assert post.stores["west"].last_known(EVE).office == "north"
