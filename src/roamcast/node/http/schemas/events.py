"""What entities send: events, sequence numbers, positions."""

from __future__ import annotations

from pydantic import Field

from roamcast.node.http.schemas.base import ResponseModel

__all__ = ["MovedOut", "NumbersOut", "PublishedOut"]


class PublishedOut(ResponseModel):
    """The events are durable."""

    accepted: int = Field(description="How many.")
    first_seq: int
    last_seq: int


class NumbersOut(ResponseModel):
    """Reserved sequence numbers: `first`, `first + 1`, …"""

    first: int
    count: int


class MovedOut(ResponseModel):
    """The positions are stored."""

    accepted: int = Field(description="How many.")
    stale: int = Field(description="How many of them were older than the known position, and ignored.")
    pending: list[str] = Field(
        default=[], description="Peers that have not confirmed yet where the caller's moving regions are now."
    )
