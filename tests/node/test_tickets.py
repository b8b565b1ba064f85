"""Tickets for streams."""

from __future__ import annotations

import pytest

from roamcast.errors import AuthenticationError, CapacityError
from roamcast.node.tickets import StreamTickets


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_ticket_stands_for_a_token_for_a_minute(clock: Clock) -> None:
    """It can be used several times: browsers connect again by themselves."""
    tickets = StreamTickets(10, clock)
    ticket = tickets.issue("mailbox", "hash")
    clock.now = 59.9
    assert [tickets.token_hash("mailbox", ticket) for _ in range(2)] == ["hash", "hash"]
    clock.now = 60.0
    with pytest.raises(AuthenticationError, match="expired"):
        tickets.token_hash("mailbox", ticket)


def test_a_ticket_opens_one_kind_of_stream(clock: Clock) -> None:
    tickets = StreamTickets(10, clock)
    ticket = tickets.issue("mailbox", "hash")
    with pytest.raises(AuthenticationError):
        tickets.token_hash("demand", ticket)
    with pytest.raises(AuthenticationError):
        tickets.token_hash("mailbox", ticket + "x")


def test_tickets_are_limited_in_all(clock: Clock) -> None:
    """Expired ones make room."""
    tickets = StreamTickets(3, clock)
    for number in range(3):
        tickets.issue("mailbox", str(number))
    with pytest.raises(CapacityError):
        tickets.issue("mailbox", "another")
    clock.now = 60
    assert tickets.issue("mailbox", "another")


def test_tickets_of_one_token_are_limited(clock: Clock) -> None:
    """Others can still have some."""
    tickets = StreamTickets(1_000, clock)
    for _ in range(100):
        tickets.issue("demand", "one")
    with pytest.raises(CapacityError):
        tickets.issue("mailbox", "one")
    assert tickets.issue("mailbox", "other")
    clock.now = 60
    assert tickets.issue("mailbox", "one")


def test_only_hashes_are_kept(clock: Clock) -> None:
    """Somebody who reads the memory of the object finds no ticket."""
    tickets = StreamTickets(10, clock)
    assert tickets.issue("mailbox", "hash") not in repr(vars(tickets))
