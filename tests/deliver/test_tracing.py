"""What became of a letter."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, Post

from roamcast.deliver.messages import ChunkReceipt
from roamcast.deliver.requests import Deposit, LetterState, SendLetter, TraceLetter, TraceReply
from roamcast.model import Letter


@pytest.fixture
def post() -> Post:
    post = Post()
    post.register(ANN, BEN, EVE)
    return post


def fate(post: Post, at: str, sender: str, receiver: str, number: int) -> tuple[LetterState, str]:
    post.heard.clear()
    post.tell(at, TraceLetter("t", receiver, sender, number))
    post.carry()
    (traced,) = [effect for domain, effect in post.heard if domain == at and isinstance(effect, TraceReply)]
    assert traced.ticket == "t"
    return traced.state, traced.office


def test_a_letter_is_followed_from_the_queue_to_the_reader(post: Post) -> None:
    """Queued, readable, acknowledged; always asked where it was sent."""
    post.send("north", ANN, BEN, "hello")
    post.lose()
    assert fate(post, "north", ANN, BEN, 1) == (LetterState.QUEUED, "north")
    post.ring("north")
    post.carry()
    assert fate(post, "north", ANN, BEN, 1) == (LetterState.READABLE, "south")
    post.arrive("west", BEN)
    post.carry()
    assert fate(post, "north", ANN, BEN, 1) == (LetterState.READABLE, "west")
    post.acknowledge("west", BEN, 1)
    assert fate(post, "north", ANN, BEN, 1) == (LetterState.ACKNOWLEDGED, "west")


def test_a_letter_behind_a_gap_is_held_back(post: Post) -> None:
    """And the one before it has not arrived."""
    post.tell("south", Deposit((Letter(BEN, "pipeline", 2, "x"),)))
    assert fate(post, "west", "pipeline", BEN, 2) == (LetterState.HELD_BACK, "south")
    assert fate(post, "west", "pipeline", BEN, 1) == (LetterState.NOT_ARRIVED, "south")


def test_a_name_that_nobody_has_is_no_receiver(post: Post) -> None:
    """Its home says so."""
    assert fate(post, "north", ANN, "south.dock.nobody", 1) == (LetterState.NO_RECEIVER, "south")
    assert fate(post, "south", BEN, "south.dock.nobody", 1) == (LetterState.NO_RECEIVER, "south")


def test_what_is_not_known_yet_is_not_guessed(post: Post) -> None:
    """A letter that may be among those still to be handed over is neither there nor acknowledged."""
    letters = tuple(Letter(ANN, "pipeline", number, "x") for number in range(1, 6))
    post.tell("north", Deposit(letters))
    post.arrive("south", ANN)
    post.carry(lambda message: not isinstance(message, ChunkReceipt))
    post.heard.clear()
    post.tell("south", TraceLetter("t", ANN, "pipeline", 5))
    assert not [effect for _, effect in post.heard if isinstance(effect, TraceReply)]
    assert fate(post, "south", "pipeline", ANN, 1) == (LetterState.READABLE, "south")


def test_a_letter_whose_time_is_over_has_expired_though_nobody_has_looked(post: Post) -> None:
    """Its receiver will never get it."""
    post.tell("north", SendLetter(ANN, ANN, "soon", ttl=10))
    assert fate(post, "north", ANN, ANN, 1) == (LetterState.READABLE, "north")
    post.now = 10
    assert fate(post, "north", ANN, ANN, 1) == (LetterState.EXPIRED, "north")


def test_a_letter_that_was_said_to_have_expired_is_never_read(post: Post) -> None:
    """Not even at an office by whose clock it has time left."""
    post.tell("north", SendLetter(ANN, ANN, "soon", ttl=10))
    post.now = 10
    assert fate(post, "north", ANN, ANN, 1) == (LetterState.EXPIRED, "north")
    post.arrive("south", ANN)
    post.carry()
    post.now = 0
    assert post.bodies("south", ANN) == []
    assert fate(post, "north", ANN, ANN, 1) == (LetterState.EXPIRED, "south")
