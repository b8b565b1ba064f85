"""Responses to other nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from roamcast.node.http.schemas.base import ResponseModel

__all__ = ["EmptyOut", "JoinedOut", "PassedOut", "PublishProofOut", "VisitorResponseOut", "VouchOut", "WantsOut"]


class JoinedOut(ResponseModel):
    """The node has joined. `proof` shows that this one knows the invitation's secret too."""

    domain: str
    nonce: str
    proof: str


class EmptyOut(ResponseModel):
    """Done."""


class VouchOut(ResponseModel):
    """Whether a move proof is valid; `unknown` if this office knows nothing of the subscriber."""

    verdict: Literal["yes", "no", "unknown"]


class PublishProofOut(ResponseModel):
    """Whether a publish proof is valid."""

    valid: bool
    attributes: str | None = Field(description="The source's attributes as JSON.")


class PassedOut(ResponseModel):
    """Whether the publish proof was valid. If so, the events are durable."""

    valid: bool


class VisitorResponseOut(ResponseModel):
    """The response to the visitor's request."""

    status: int
    body: str


class WantsOut(ResponseModel):
    """What is stored, and how far the events in the journals of this data folder are journalled at the sender."""

    version: int
    time: int = Field(description="Microseconds since 1970.")
    no_pipeline: str | None = Field(description="Why events do not flow, if they do not.")
    journal_ends: dict[str, int]
    drained: dict[str, int]
