"""What entities send: events, sequence numbers, positions."""

from __future__ import annotations

from pydantic import BaseModel, Field

from roamcast.node.http.schemas.base import ResponseModel

__all__ = ["MovedOut", "NumbersBySourceOut", "NumbersOut", "PublishedOut", "SourceNumbersOut"]


class SourceNumbersOut(ResponseModel):
    """The numbers of the first and the last event of a source."""

    source: str
    first_seq: int
    last_seq: int


class PublishedOut(BaseModel):
    """The events are durable."""

    accepted: int = Field(description="How many.")
    first_seq: int = Field(description="Of the first event.")
    last_seq: int = Field(description="Of the last event.")
    sources: list[SourceNumbersOut] = Field(
        default=[], description="Each source, in the order of their first events. Absent if there is only one."
    )


class NumbersOut(ResponseModel):
    """Reserved sequence numbers: `first`, `first + 1`, …"""

    first: int
    count: int


class NumbersBySourceOut(ResponseModel):
    """Reserved sequence numbers of each source."""

    sources: dict[str, NumbersOut]


class MovedOut(ResponseModel):
    """The positions are stored."""

    accepted: int = Field(description="How many.")
    stale: int = Field(description="How many of them were older than the known position, and ignored.")
    pending: list[str] = Field(
        default=[], description="Peers that have not confirmed yet where the caller's moving regions are now."
    )
