"""What became of a letter."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, PostNetwork

from roamcast.deliver.messages import ChunkReceipt
from roamcast.deliver.requests import Deposit, LetterState, SendLetter, TraceLetter, TraceReply
from roamcast.model import Letter


@pytest.fixture
def post() -> PostNetwork:
    post = PostNetwork()
    post.register(ANN, BEN, EVE)
    return post


def trace(post: PostNetwork, at: str, sender: str, receiver: str, number: int) -> tuple[LetterState, str]:
    post.emitted.clear()
    post.tell(at, TraceLetter("t", receiver, sender, number))
    post.carry()
    (traced,) = [effect for domain, effect in post.emitted if domain == at and isinstance(effect, TraceReply)]
    assert traced.ticket == "t"
    return traced.state, traced.office


def test_trace_follows_a_letter_from_queue_to_acknowledgement(post: PostNetwork) -> None:
    """Always at the office where it was sent."""
    post.send("north", ANN, BEN, "hello")
    post.lose()
    assert trace(post, "north", ANN, BEN, 1) == (LetterState.QUEUED, "north")
    post.ring("north")
    post.carry()
    assert trace(post, "north", ANN, BEN, 1) == (LetterState.READABLE, "south")
    post.arrive("west", BEN)
    post.carry()
    assert trace(post, "north", ANN, BEN, 1) == (LetterState.READABLE, "west")
    post.acknowledge("west", BEN, 1)
    assert trace(post, "north", ANN, BEN, 1) == (LetterState.ACKNOWLEDGED, "west")


def test_letter_behind_a_gap_is_held_back(post: PostNetwork) -> None:
    """The one before it has not arrived."""
    post.tell("south", Deposit((Letter(BEN, "pipeline", 2, "x"),)))
    assert trace(post, "west", "pipeline", BEN, 2) == (LetterState.HELD_BACK, "south")
    assert trace(post, "west", "pipeline", BEN, 1) == (LetterState.NOT_ARRIVED, "south")


def test_unknown_name_is_no_receiver(post: PostNetwork) -> None:
    """Its home says so."""
    assert trace(post, "north", ANN, "south.dock.nobody", 1) == (LetterState.NO_RECEIVER, "south")
    assert trace(post, "south", BEN, "south.dock.nobody", 1) == (LetterState.NO_RECEIVER, "south")


def test_trace_does_not_guess_during_a_hand_over(post: PostNetwork) -> None:
    """A letter that may still arrive is neither readable nor acknowledged."""
    letters = tuple(Letter(ANN, "pipeline", number, "x") for number in range(1, 6))
    post.tell("north", Deposit(letters))
    post.arrive("south", ANN)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.emitted.clear()
    post.tell("south", TraceLetter("t", ANN, "pipeline", 5))
    assert not [effect for _, effect in post.emitted if isinstance(effect, TraceReply)]
    assert trace(post, "south", "pipeline", ANN, 1) == (LetterState.READABLE, "south")


def test_overdue_letter_is_expired_before_any_pull(post: PostNetwork) -> None:
    post.tell("north", SendLetter(ANN, ANN, "soon", ttl=10))
    assert trace(post, "north", ANN, ANN, 1) == (LetterState.READABLE, "north")
    post.now = 10
    assert trace(post, "north", ANN, ANN, 1) == (LetterState.EXPIRED, "north")


def test_letter_reported_as_expired_is_never_read(post: PostNetwork) -> None:
    """Not even at an office whose clock is behind."""
    post.tell("north", SendLetter(ANN, ANN, "soon", ttl=10))
    post.now = 10
    assert trace(post, "north", ANN, ANN, 1) == (LetterState.EXPIRED, "north")
    post.arrive("south", ANN)
    post.carry()
    post.now = 0
    assert post.bodies("south", ANN) == []
    assert trace(post, "north", ANN, ANN, 1) == (LetterState.EXPIRED, "south")
