"""Putting letters into mailboxes and handing them out."""

from __future__ import annotations

import pytest
from post import ANN, Post

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.requests import (
    Acknowledge,
    Acknowledged,
    Deposit,
    Deposited,
    LettersReady,
    LetterState,
    Pull,
    Pulled,
    SendLetter,
    TraceLetter,
    TraceReply,
)
from roamcast.errors import CapacityError, ElsewhereError, InputError
from roamcast.model import Letter


def letters(*numbers: int, sender: str = "pipeline", expires: int | None = None) -> Deposit:
    return Deposit(tuple(Letter(ANN, sender, number, f"{sender} {number}", expires=expires) for number in numbers))


def an_office(rules: OfficeLimits | None = None) -> Post:
    post = Post(rules=rules)
    post.register(ANN)
    return post


def test_letters_stay_until_they_are_acknowledged() -> None:
    """Pulling changes nothing; acknowledging deletes through the place, once."""
    post = an_office()
    post.tell("north", letters(2, 1, 3))
    assert post.bodies("north", ANN) == post.bodies("north", ANN) == ["pipeline 1", "pipeline 2", "pipeline 3"]
    assert post.tell("north", Acknowledge(ANN, 2)) == [Acknowledged(ANN, 2)]
    assert post.tell("north", Acknowledge(ANN, 1)) == [Acknowledged(ANN, 0)]
    assert post.bodies("north", ANN) == ["pipeline 3"]


def test_an_empty_mailbox_has_no_mail() -> None:
    """The paper's answer to a request without letters."""
    assert an_office().tell("north", Pull(ANN, 10)) == [Pulled(ANN, (), 0)]


def test_readers_are_woken_when_there_is_something_to_read() -> None:
    """Not by a letter that is held back."""
    post = an_office()
    assert LettersReady(ANN) not in post.tell("north", letters(2))
    assert LettersReady(ANN) in post.tell("north", letters(1))
    assert post.bodies("north", ANN) == ["pipeline 1", "pipeline 2"]


def test_what_was_deposited_before_changes_nothing() -> None:
    """A batch that comes again is taken again, and nothing is doubled, acknowledged or not."""
    post = an_office()
    post.tell("north", letters(1, 2))
    post.acknowledge("north", ANN, 1)
    assert post.tell("north", letters(1, 2)) == [Deposited(2, 0, duplicates=2)]
    assert post.bodies("north", ANN) == ["pipeline 2"]


def test_pull_gives_what_fits() -> None:
    """By number and by bytes, but always one; behind a place if asked."""
    post = an_office()
    post.tell("north", letters(*range(1, 6)))
    assert len(post.pull("north", ANN, limit=2)) == 2
    assert [filed.offset for filed in post.pull("north", ANN, after=3)] == [4, 5]
    for size, count in ((0, 1), (20, 2), (29, 2), (30, 3)):
        (pulled,) = post.tell("north", Pull(ANN, 9, size=size))
        assert isinstance(pulled, Pulled)
        assert len(pulled.letters) == count


@pytest.mark.parametrize("through", [0, -1, 3, 2**70])
def test_a_place_that_no_letter_had_cannot_be_acknowledged(through: int) -> None:
    """The error says which there are."""
    post = an_office()
    post.tell("north", letters(1, 2))
    with pytest.raises(InputError, match="1 to 2"):
        post.acknowledge("north", ANN, through)


def test_a_limit_below_one_is_refused() -> None:
    """Asking for nothing is a mistake."""
    with pytest.raises(InputError):
        an_office().pull("north", ANN, limit=0)


def test_who_is_not_served_here_is_told_so() -> None:
    """Reading at an office that knows nothing of a subscriber."""
    with pytest.raises(ElsewhereError) as caught:
        an_office().pull("south", ANN)
    assert (caught.value.office, caught.value.epoch) == (None, 0)


def test_a_full_mailbox_refuses_and_the_sender_keeps_the_letter() -> None:
    """The number is not used up: the same letter goes in when there is room."""
    post = an_office(OfficeLimits(mailbox_letters=2))
    post.tell("north", letters(1, 2))
    with pytest.raises(CapacityError):
        post.tell("north", SendLetter(ANN, ANN, "to myself", 1))
    post.acknowledge("north", ANN, 1)
    post.tell("north", SendLetter(ANN, ANN, "to myself", 1))
    assert post.bodies("north", ANN) == ["pipeline 2", "to myself"]


def test_a_deposit_waits_for_a_full_mailbox() -> None:
    """It is accepted, queued, and filed when there is room."""
    post = an_office(OfficeLimits(mailbox_letters=2))
    assert Deposited(2, 1) in post.tell("north", letters(1, 2, 3))
    post.acknowledge("north", ANN, 2)
    assert post.bodies("north", ANN) == ["pipeline 3"]


def test_letters_held_back_never_keep_out_the_one_they_wait_for() -> None:
    """With all room for early letters taken, the missing one still goes in, and all come out in order."""
    post = an_office(OfficeLimits(mailbox_letters=10, held_letters=3))
    post.tell("north", letters(2, 3, 4, 5))
    assert post.bodies("north", ANN) == []
    post.tell("north", letters(1))
    assert post.bodies("north", ANN) == [f"pipeline {number}" for number in (1, 2, 3, 4)]
    post.ring("north")
    assert post.bodies("north", ANN)[-1] == "pipeline 5"


def test_a_full_mailbox_still_knows_what_it_has_had() -> None:
    """A letter that was received is taken, full or not, and not put in again."""
    post = an_office(OfficeLimits(mailbox_letters=2))
    post.tell("north", letters(1, 2))
    assert post.tell("north", letters(2)) == [Deposited(1, 0, duplicates=1)]
    assert len(post.pull("north", ANN)) == 2


def test_time_to_live_strikes_visibly() -> None:
    """An expired letter is not handed out, is counted, and does not hold back those behind it."""
    post = an_office()
    post.tell("north", letters(1, expires=100))
    post.tell("north", letters(2))
    post.now = 100
    (pulled,) = post.tell("north", Pull(ANN, 10))
    assert isinstance(pulled, Pulled)
    assert ([filed.letter.number for filed in pulled.letters], pulled.expired) == ([2], 1)
    assert post.tell("north", TraceLetter("t", ANN, "pipeline", 1)) == [TraceReply("t", LetterState.EXPIRED, "north")]


def test_time_to_live_ends_when_a_letter_is_handed_out() -> None:
    """What its receiver may have read is never called expired: it stays until it is acknowledged."""
    post = an_office()
    post.tell("north", letters(1, expires=100))
    assert len(post.pull("north", ANN)) == 1
    post.now = 1_000
    assert len(post.pull("north", ANN)) == 1


def test_expired_letters_make_room() -> None:
    """A mailbox is not full of letters that nobody will read."""
    post = an_office(OfficeLimits(mailbox_letters=2))
    post.tell("north", letters(1, 2, expires=100))
    post.now = 100
    post.tell("north", letters(3))
    assert post.bodies("north", ANN) == ["pipeline 3"]
