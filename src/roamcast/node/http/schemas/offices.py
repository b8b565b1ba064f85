"""This office and its peers."""

from __future__ import annotations

from pydantic import Field

from roamcast.node.http.schemas.base import ResponseModel, Time

__all__ = ["InvitationOut", "OfficeOut", "OfficesOut", "PeerOut"]


class OfficeOut(ResponseModel):
    """An office."""

    domain: str
    url: str
    at: tuple[float, float] | None = Field(description="Its position, [x, y], if known.")


class PeerOut(OfficeOut):
    """An office that has joined."""

    reachable: bool
    last_response_at: Time | None = Field(description="When it last responded to a discovery request.")


class OfficesOut(OfficeOut):
    """This office and its peers."""

    offices: list[PeerOut]


class InvitationOut(ResponseModel):
    """A secret that lets the node of a domain join within an hour."""

    domain: str
    invitation: str
