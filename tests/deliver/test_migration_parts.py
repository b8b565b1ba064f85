"""Mailboxes of which so much is known that it is handed over in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from post import ANN, BEN, Post, left, served

from roamcast.deliver.messages import ChunkReceipt, MailboxChunk, MailboxClaim
from roamcast.deliver.messages import LetterBundle as PostMessage
from roamcast.deliver.requests import Arrived, Deposit
from roamcast.errors import ElsewhereError
from roamcast.model import Letter


@pytest.fixture
def small() -> Post:
    """Of ann, who has written to many, with letters of many; and only a little fits a portion."""
    small = Post(rules=replace(Post().rules, message_bytes=250))
    small.register(ANN, BEN)
    for name in (f"south.dock.x{at}" for at in range(5)):
        small.send("north", ANN, name, "hello")
    small.tell("north", Deposit(tuple(Letter(ANN, f"sender{at}", 1, f"{at}") for at in range(5))))
    small.tell("north", Deposit(tuple(Letter(ANN, "pipeline", number, str(number)) for number in (1, 3, 5))))
    small.lose()
    return small


def test_what_a_mailbox_knows_comes_in_parts_if_it_is_much(small: Post) -> None:
    """It is served when all of that has come, with the first letters, and not before; nothing of it is lost."""
    known = small.stores["north"].bookkeeping(ANN)
    small.arrive("south", ANN, 2, "north")
    parts = 0
    while ("south", 2) not in served(small, ANN):
        small.tell("north", small.only(ChunkReceipt if parts else MailboxClaim))
        portion = small.only(MailboxChunk)
        small.lose()
        with pytest.raises(ElsewhereError):
            small.pull("south", ANN)
        small.tell("south", portion)
        parts += 1
    assert parts > 3
    assert small.heard.count(("south", Arrived(ANN, 2))) == 1
    small.carry()
    assert small.stores["south"].bookkeeping(ANN) == known
    assert (left(small, ANN), len(small.pull("south", ANN))) == (["south"], 6)


@pytest.mark.parametrize("crashed", ["north", "south"])
@pytest.mark.parametrize("lost", [MailboxChunk, ChunkReceipt])
def test_parts_go_on_after_a_crash(small: Post, crashed: str, lost: type) -> None:
    """Of either office, after any of them, with what was on the way lost: it goes on where it was."""
    known = small.stores["north"].bookkeeping(ANN)
    small.arrive("south", ANN, 2, "north")
    for _ in range(40):
        small.carry(lambda message: not isinstance(message, lost))
        small.restart(crashed)
        for domain in ("south", "north"):
            small.ring(domain)
        for _ in range(2):
            if small.wires:
                _, to, message = small.wires.popleft()
                small.tell(to, message)
    small.carry()
    assert (served(small, ANN), left(small, ANN)) == ([("south", 2)], ["south"])
    assert small.stores["south"].bookkeeping(ANN) == known


def test_a_mailbox_of_which_only_a_part_has_come_is_neither_served_nor_given_away(small: Post) -> None:
    """Letters to it wait, claims for it are left alone, and a later arrival counts when all is there."""
    small.arrive("south", ANN, 2, "north")
    small.tell("north", small.only(MailboxClaim))
    portion = small.only(MailboxChunk)
    small.lose()
    small.tell("south", portion)
    small.lose()
    small.tell("south", MailboxClaim(ANN, 4, "west", ""))
    small.tell("south", PostMessage(ANN, (Letter(ANN, "other", 1, "new"),), "west", 2))
    assert not small.wires
    small.arrive("south", ANN, 3, "north")
    small.carry()
    small.ring("north")
    small.carry()
    assert served(small, ANN) == [("south", 3)]
