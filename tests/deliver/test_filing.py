"""Filing letters and handing them out."""

from __future__ import annotations

import pytest
from post import ANN, PostNetwork

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


def an_office(limits: OfficeLimits | None = None) -> PostNetwork:
    post = PostNetwork(limits=limits)
    post.register(ANN)
    return post


def test_letters_stay_until_acknowledged() -> None:
    """Pulling changes nothing; acknowledging deletes through the offset, once."""
    post = an_office()
    post.tell("north", letters(2, 1, 3))
    assert post.bodies("north", ANN) == post.bodies("north", ANN) == ["pipeline 1", "pipeline 2", "pipeline 3"]
    assert post.tell("north", Acknowledge(ANN, 2)) == [Acknowledged(ANN, 2)]
    assert post.tell("north", Acknowledge(ANN, 1)) == [Acknowledged(ANN, 0)]
    assert post.bodies("north", ANN) == ["pipeline 3"]


def test_pull_from_empty_mailbox_returns_nothing() -> None:
    assert an_office().tell("north", Pull(ANN, 10)) == [Pulled(ANN, (), 0)]


def test_letters_ready_is_sent_when_letters_become_readable() -> None:
    """Not for a letter that is held back."""
    post = an_office()
    assert LettersReady((ANN,)) not in post.tell("north", letters(2))
    assert LettersReady((ANN,)) in post.tell("north", letters(1))
    assert post.bodies("north", ANN) == ["pipeline 1", "pipeline 2"]


def test_repeated_deposit_changes_nothing() -> None:
    """Whether the letters were acknowledged or not."""
    post = an_office()
    post.tell("north", letters(1, 2))
    post.acknowledge("north", ANN, 1)
    assert post.tell("north", letters(1, 2)) == [Deposited(2, 0, duplicates=2)]
    assert post.bodies("north", ANN) == ["pipeline 2"]


def test_pull_is_limited_by_count_and_bytes() -> None:
    """But returns at least one letter; after an offset if given."""
    post = an_office()
    post.tell("north", letters(*range(1, 6)))
    assert len(post.pull("north", ANN, limit=2)) == 2
    assert [filed.offset for filed in post.pull("north", ANN, after=3)] == [4, 5]
    for size, count in ((0, 1), (20, 2), (29, 2), (30, 3)):
        (pulled,) = post.tell("north", Pull(ANN, 9, size=size))
        assert isinstance(pulled, Pulled)
        assert len(pulled.letters) == count


@pytest.mark.parametrize("through", [0, -1, 3, 2**70])
def test_acknowledging_an_unused_offset_raises_input_error(through: int) -> None:
    """The hint names the used offsets."""
    post = an_office()
    post.tell("north", letters(1, 2))
    with pytest.raises(InputError, match="1 to 2"):
        post.acknowledge("north", ANN, through)


def test_pull_limit_below_one_raises_input_error() -> None:
    with pytest.raises(InputError):
        an_office().pull("north", ANN, limit=0)


def test_pull_at_an_office_that_does_not_serve_raises_elsewhere_error() -> None:
    with pytest.raises(ElsewhereError) as caught:
        an_office().pull("south", ANN)
    assert (caught.value.office, caught.value.epoch) == (None, 0)


def test_full_mailbox_rejects_a_letter() -> None:
    """Its number is not used: the same letter is accepted when there is room."""
    post = an_office(OfficeLimits(mailbox_letters=2))
    post.tell("north", letters(1, 2))
    with pytest.raises(CapacityError):
        post.tell("north", SendLetter(ANN, ANN, "to myself", 1))
    post.acknowledge("north", ANN, 1)
    post.tell("north", SendLetter(ANN, ANN, "to myself", 1))
    assert post.bodies("north", ANN) == ["pipeline 2", "to myself"]


def test_deposit_to_a_full_mailbox_is_queued() -> None:
    """It is filed when there is room."""
    post = an_office(OfficeLimits(mailbox_letters=2))
    assert Deposited(2, 1) in post.tell("north", letters(1, 2, 3))
    post.acknowledge("north", ANN, 2)
    assert post.bodies("north", ANN) == ["pipeline 3"]


def test_held_back_letters_do_not_keep_out_the_missing_one() -> None:
    """Even if all room for held-back letters is used."""
    post = an_office(OfficeLimits(mailbox_letters=10, held_letters=3))
    post.tell("north", letters(2, 3, 4, 5))
    assert post.bodies("north", ANN) == []
    post.tell("north", letters(1))
    assert post.bodies("north", ANN) == [f"pipeline {number}" for number in (1, 2, 3, 4)]
    post.ring("north")
    assert post.bodies("north", ANN)[-1] == "pipeline 5"


def test_full_mailbox_accepts_duplicates() -> None:
    """They are not filed again."""
    post = an_office(OfficeLimits(mailbox_letters=2))
    post.tell("north", letters(1, 2))
    assert post.tell("north", letters(2)) == [Deposited(1, 0, duplicates=1)]
    assert len(post.pull("north", ANN)) == 2


def test_expired_letter_is_counted_and_not_handed_out() -> None:
    """It does not hold back later letters."""
    post = an_office()
    post.tell("north", letters(1, expires=100))
    post.tell("north", letters(2))
    post.now = 100
    (pulled,) = post.tell("north", Pull(ANN, 10))
    assert isinstance(pulled, Pulled)
    assert ([filed.letter.number for filed in pulled.letters], pulled.expired) == ([2], 1)
    assert post.tell("north", TraceLetter("t", ANN, "pipeline", 1)) == [TraceReply("t", LetterState.EXPIRED, "north")]


def test_letter_cannot_expire_after_it_was_handed_out() -> None:
    """It stays until it is acknowledged."""
    post = an_office()
    post.tell("north", letters(1, expires=100))
    assert len(post.pull("north", ANN)) == 1
    post.now = 1_000
    assert len(post.pull("north", ANN)) == 1


def test_expired_letters_make_room() -> None:
    post = an_office(OfficeLimits(mailbox_letters=2))
    post.tell("north", letters(1, 2, expires=100))
    post.now = 100
    post.tell("north", letters(3))
    assert post.bodies("north", ANN) == ["pipeline 3"]
