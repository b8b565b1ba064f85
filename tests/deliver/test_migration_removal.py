"""Removal of subscribers."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, PostNetwork

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
def post() -> PostNetwork:
    post = PostNetwork()
    post.register(ANN, BEN, EVE)
    return post


def test_removed_subscriber_has_no_mailbox(post: PostNetwork) -> None:
    """Its letters are deleted, later ones of the pipeline are dropped. Removal is idempotent."""
    post.tell("north", Deposit((Letter(ANN, "pipeline", 1, "a"),)))
    for _ in range(2):
        assert post.tell("north", Remove(ANN)) == [Removed(ANN)]
    assert post.tell("north", Deposit((Letter(ANN, "pipeline", 2, "b"),))) == [Deposited(0, 0, dropped=1)]
    with pytest.raises(ElsewhereError):
        post.pull("north", ANN)
    assert not post.stores["north"].pending_work()


def test_removed_name_is_never_reused(post: PostNetwork) -> None:
    """Not even one that was removed before it was registered."""
    for name in (ANN, "north.pier.zoe"):
        post.tell("north", Remove(name))
        with pytest.raises(ConflictError, match="was removed"):
            post.tell("north", Register(name))


def test_letters_to_a_removed_subscriber_leave_the_queues(post: PostNetwork) -> None:
    """The sender's office learns of the removal from the last known office or the home."""
    post.send("south", BEN, ANN, "known")
    post.carry()
    post.tell("north", Remove(ANN))
    post.send("south", BEN, ANN, "by the address book")
    post.send("west", EVE, ANN, "by the home")
    post.carry()
    assert [post.stores[domain].queue_length(ANN) for domain in post.stores] == [0, 0, 0]
    post.tell("west", TraceLetter("ticket", ANN, EVE, 1))
    post.carry()
    assert post.emitted[-1] == ("west", TraceReply("ticket", LetterState.NO_RECEIVER, "north"))
    post.register("north.pier.ida")
    with pytest.raises(NotFoundError):
        post.tell("north", SendLetter("north.pier.ida", ANN, "at the home itself"))


def test_queued_letters_are_dropped_with_their_receiver(post: PostNetwork) -> None:
    """While the mailbox is full or moving."""
    post.tell("north", Deposit((Letter("north.pier.zoe", "pipeline", 1, "early"),)))
    assert post.stores["north"].queue_length("north.pier.zoe") == 1
    post.tell("north", Remove("north.pier.zoe"))
    assert post.stores["north"].queue_length("north.pier.zoe") == 0


def test_removal_needs_the_mailbox_at_home(post: PostNetwork) -> None:
    """Otherwise it is refused and changes nothing."""
    post.arrive("south", ANN, 2)
    post.carry()
    with pytest.raises(ElsewhereError):
        post.tell("north", Remove(ANN))
    with pytest.raises(InputError):
        post.tell("south", Remove(ANN))
    assert post.bodies("south", ANN) == []


def test_removed_subscriber_cannot_arrive(post: PostNetwork) -> None:
    """At home at once, elsewhere when its home has answered."""
    post.tell("north", Remove(ANN))
    with pytest.raises(NotFoundError):
        post.arrive("north", ANN, 3)
    post.arrive("south", ANN)
    post.carry()
    assert ArrivalRefused(ANN, "", 2) in [effect for domain, effect in post.emitted if domain == "south"]
    assert not post.stores["south"].pending_work()


def test_letters_sent_before_registration_are_filed_at_registration(post: PostNetwork) -> None:
    """At once, without waiting for a timer."""
    post.tell("north", Deposit((Letter("north.pier.zoe", "pipeline", 1, "early"),)))
    post.register("north.pier.zoe")
    assert post.bodies("north", "north.pier.zoe") == ["early"]
