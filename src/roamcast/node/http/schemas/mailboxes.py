"""Mailboxes and letters."""

from __future__ import annotations

from typing import Any

from pydantic import Field, RootModel

from roamcast.deliver.requests import LetterState
from roamcast.node.http.schemas.base import ResponseModel, Time
from roamcast.node.http.schemas.errors import ErrorOut

__all__ = [
    "AcknowledgedOut", "ArrivalOut", "LastNumberOut", "LetterOut", "MailboxesOut", "PulledOut", "SentOut", "TicketOut",
    "TraceOut",
]  # fmt: skip


class _LetterHead(ResponseModel):
    offset: int = Field(description="Its offset in the mailbox.")
    sender: str
    number: int = Field(description="The sender numbers its letters to each receiver 1, 2, 3, …")


class EventOut(ResponseModel):
    """An event as it was published, with the defaults of the node."""

    id: str
    source: str
    seq: int
    time: Time
    x: float
    y: float
    terms: list[str]
    readings: dict[str, float]


class EventLetterOut(_LetterHead):
    """A letter with an event. Its sender is the pipeline."""

    subscription: str
    why: str | None = Field(description="Why the event matched.")
    event: EventOut


class MessageLetterOut(_LetterHead):
    """A letter of another subscriber."""

    title: str
    message: Any


class LetterOut(RootModel[EventLetterOut | MessageLetterOut]):
    """A letter with an event, or of another subscriber."""


class PulledOut(ResponseModel):
    """The next letters of a mailbox."""

    letters: list[LetterOut]
    waiting: int = Field(description="How many letters are in the mailbox.")


class MailboxesOut(ResponseModel):
    """What pulling each mailbox alone would return, in the order of the request."""

    mailboxes: list[PulledOut | ErrorOut]


class AcknowledgedOut(ResponseModel):
    """How many letters were deleted."""

    acknowledged: int


class TicketOut(ResponseModel):
    """Opens one stream of the caller, in place of the token."""

    ticket: str
    seconds: float = Field(description="How long a stream can be opened with it.")


class SentLetterOut(ResponseModel):
    """A letter that is durable."""

    receiver: str
    number: int
    new: bool = Field(description="False if it was sent before.")


class SentLettersOut(ResponseModel):
    """What became of each letter of a list, in the same order."""

    sender: str
    letters: list[SentLetterOut | ErrorOut]


class SentOneOut(SentLetterOut):
    """A letter that is durable, and its sender."""

    sender: str


class SentOut(RootModel[SentOneOut | SentLettersOut]):
    """What became of one letter, or of each letter of a list."""


class LastNumberOut(ResponseModel):
    """The number of the last letter to a receiver; 0 for none."""

    receiver: str
    number: int


class TraceOut(ResponseModel):
    """What became of a letter.

    `queued`: at the office where it was posted, which keeps trying. `not_arrived`: the mailbox has not received it.
    `held_back`: it is in the mailbox, behind a missing letter.
    """

    receiver: str
    number: int
    state: LetterState
    office: str = Field(description="The office that reports it.")


class ArrivalOut(ResponseModel):
    """The mailbox is here."""

    name: str
    epoch: int
    office: str
    token: str = Field(description="Opens the mailbox at this office.")
