"""Subscribers that leave for good."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, Post

from roamcast.deliver.requests import (
    ArrivalRefused,
    Deposit,
    Deposited,
    LetterState,
    Register,
    Remove,
    Removed,
    SendLetter,
    TraceLetter,
    TraceReply,
)
from roamcast.errors import ConflictError, ElsewhereError, InputError, NotFoundError
from roamcast.model import Letter


@pytest.fixture
def post() -> Post:
    post = Post()
    post.register(ANN, BEN, EVE)
    return post


def test_who_has_left_has_no_mailbox(post: Post) -> None:
    """Its letters go; those that come later from the pipeline are dropped; again it is harmless."""
    post.tell("north", Deposit((Letter(ANN, "pipeline", 1, "a"),)))
    for _ in range(2):
        assert post.tell("north", Remove(ANN)) == [Removed(ANN)]
    assert post.tell("north", Deposit((Letter(ANN, "pipeline", 2, "b"),))) == [Deposited(0, 0, dropped=1)]
    with pytest.raises(ElsewhereError):
        post.pull("north", ANN)
    assert not post.stores["north"].pending_work()


def test_a_name_is_never_given_again(post: Post) -> None:
    """Not even one that left before it was ever registered."""
    for name in (ANN, "north.pier.zoe"):
        post.tell("north", Remove(name))
        with pytest.raises(ConflictError, match="was removed"):
            post.tell("north", Register(name))


def test_letters_to_who_has_left_are_waited_for_by_nobody(post: Post) -> None:
    """The sender's office hears of it by way of the address book or of the home, and keeps nothing."""
    post.send("south", BEN, ANN, "known")
    post.carry()
    post.tell("north", Remove(ANN))
    post.send("south", BEN, ANN, "by the address book")
    post.send("west", EVE, ANN, "by the home")
    post.carry()
    assert [post.stores[domain].queue_length(ANN) for domain in post.stores] == [0, 0, 0]
    post.tell("west", TraceLetter("ticket", ANN, EVE, 1))
    post.carry()
    assert post.heard[-1] == ("west", TraceReply("ticket", LetterState.NO_RECEIVER, "north"))
    post.register("north.pier.ida")
    with pytest.raises(NotFoundError):
        post.tell("north", SendLetter("north.pier.ida", ANN, "at the home itself"))


def test_letters_that_wait_go_with_their_receiver(post: Post) -> None:
    """What is queued at home while the mailbox is full or being moved is dropped."""
    post.tell("north", Deposit((Letter("north.pier.zoe", "pipeline", 1, "early"),)))
    assert post.stores["north"].queue_length("north.pier.zoe") == 1
    post.tell("north", Remove("north.pier.zoe"))
    assert post.stores["north"].queue_length("north.pier.zoe") == 0


def test_one_leaves_at_home_only(post: Post) -> None:
    """While the mailbox is elsewhere, and anywhere else, it is refused and changes nothing."""
    post.arrive("south", ANN, 2)
    post.carry()
    with pytest.raises(ElsewhereError):
        post.tell("north", Remove(ANN))
    with pytest.raises(InputError):
        post.tell("south", Remove(ANN))
    assert post.bodies("south", ANN) == []


def test_who_has_left_arrives_nowhere(post: Post) -> None:
    """At home at once, elsewhere when its home has said so."""
    post.tell("north", Remove(ANN))
    with pytest.raises(NotFoundError):
        post.arrive("north", ANN, 3)
    post.arrive("south", ANN)
    post.carry()
    assert ArrivalRefused(ANN, "", 2) in [effect for domain, effect in post.heard if domain == "south"]
    assert not post.stores["south"].pending_work()


def test_letters_that_came_before_their_receiver_are_there_when_it_is_registered(post: Post) -> None:
    """At once, without waiting for a timer."""
    post.tell("north", Deposit((Letter("north.pier.zoe", "pipeline", 1, "early"),)))
    post.register("north.pier.zoe")
    assert post.bodies("north", "north.pier.zoe") == ["early"]
