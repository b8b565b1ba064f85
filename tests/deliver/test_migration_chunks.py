"""Mailboxes with more bookkeeping than fits one chunk."""

from __future__ import annotations

from dataclasses import replace

import pytest
from post import ANN, BEN, PostNetwork, holders, served

from roamcast.deliver.messages import ChunkReceipt, MailboxChunk, MailboxClaim
from roamcast.deliver.messages import LetterBundle as PostMessage
from roamcast.deliver.requests import Arrived, Deposit
from roamcast.errors import ElsewhereError
from roamcast.model import Letter


@pytest.fixture
def small() -> PostNetwork:
    """Ann has sent letters to many and received letters from many; little fits one chunk."""
    small = PostNetwork(limits=replace(PostNetwork().limits, message_bytes=250))
    small.register(ANN, BEN)
    for name in (f"south.dock.x{at}" for at in range(5)):
        small.send("north", ANN, name, "hello")
    small.tell("north", Deposit(tuple(Letter(ANN, f"sender{at}", 1, f"{at}") for at in range(5))))
    small.tell("north", Deposit(tuple(Letter(ANN, "pipeline", number, str(number)) for number in (1, 3, 5))))
    small.lose()
    return small


def test_large_bookkeeping_moves_in_several_chunks(small: PostNetwork) -> None:
    """The mailbox is served when all of it has arrived, and nothing is lost."""
    known = small.stores["north"].bookkeeping(ANN)
    small.arrive("south", ANN, 2, "north")
    parts = 0
    while ("south", 2) not in served(small, ANN):
        small.tell("north", small.only(ChunkReceipt if parts else MailboxClaim))
        chunk = small.only(MailboxChunk)
        small.lose()
        with pytest.raises(ElsewhereError):
            small.pull("south", ANN)
        small.tell("south", chunk)
        parts += 1
    assert parts > 3
    assert small.emitted.count(("south", Arrived(ANN, 2))) == 1
    small.carry()
    assert small.stores["south"].bookkeeping(ANN) == known
    assert (holders(small, ANN), len(small.pull("south", ANN))) == (["south"], 6)


@pytest.mark.parametrize("crashed", ["north", "south"])
@pytest.mark.parametrize("lost", [MailboxChunk, ChunkReceipt])
def test_chunks_continue_after_a_crash(small: PostNetwork, crashed: str, lost: type) -> None:
    """Of either office, after any chunk, with messages in flight lost."""
    known = small.stores["north"].bookkeeping(ANN)
    small.arrive("south", ANN, 2, "north")
    for _ in range(40):
        small.carry(lambda message: not isinstance(message, lost))
        small.restart(crashed)
        for domain in ("south", "north"):
            small.ring(domain)
        for _ in range(2):
            if small.in_flight:
                _, to, message = small.in_flight.popleft()
                small.tell(to, message)
    small.carry()
    assert (served(small, ANN), holders(small, ANN)) == ([("south", 2)], ["south"])
    assert small.stores["south"].bookkeeping(ANN) == known


def test_mailbox_without_all_bookkeeping_is_neither_served_nor_given_away(small: PostNetwork) -> None:
    """Letters wait, claims are ignored, and a later arrival counts when all is there."""
    small.arrive("south", ANN, 2, "north")
    small.tell("north", small.only(MailboxClaim))
    chunk = small.only(MailboxChunk)
    small.lose()
    small.tell("south", chunk)
    small.lose()
    small.tell("south", MailboxClaim(ANN, 4, "west", ""))
    small.tell("south", PostMessage(ANN, (Letter(ANN, "other", 1, "new"),), "west", 2))
    assert not small.in_flight
    small.arrive("south", ANN, 3, "north")
    small.carry()
    small.ring("north")
    small.carry()
    assert served(small, ANN) == [("south", 3)]
