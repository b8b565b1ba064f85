"""Sources, subscribers, gateways and demand."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, RootModel

from roamcast.node.http.schemas.base import Attributes, ResponseModel, Time
from roamcast.node.http.schemas.errors import ErrorFields

__all__ = [
    "DemandOut", "EntityOut", "GatewayOut", "MeOut", "PositionOut", "RegisteredOut", "SourceOut", "SourcesOut",
    "SubscriberOut", "TokenOut", "WhereOut",
]  # fmt: skip

Kind = Literal["source", "subscriber", "gateway"]


class SourceOut(ResponseModel):
    """A registered source."""

    id: str
    kind: Literal["source"] = "source"
    token: str | None = Field(description="Returned only once. Keep it. Null for a source of a gateway.")
    gateway: str | None = Field(default=None, description="The gateway that it belongs to.")


class AddedSourceOut(ResponseModel):
    """A source of a list."""

    id: str
    new: bool = Field(description="False if the gateway had this source already.")


class RefusedSourceOut(BaseModel):
    """A row of a list with which nothing was done."""

    id: str = Field(default="", description="Absent if the row could not be read.")
    error: ErrorFields


class AddedSourcesOut(ResponseModel):
    """What became of each source of a list, in the same order."""

    added: int
    existing: int
    refused: int
    sources: list[AddedSourceOut | RefusedSourceOut]


class RegisteredOut(RootModel[AddedSourcesOut | SourceOut]):
    """What became of a list, or a source that was registered before."""


class GatewayOut(ResponseModel):
    """A registered gateway."""

    id: str
    kind: Literal["gateway"] = "gateway"
    token: str = Field(description="Returned only once. Keep it.")


class SubscriberOut(ResponseModel):
    """A registered subscriber."""

    id: str
    kind: Literal["subscriber"] = "subscriber"
    token: str = Field(description="Returned only once. Keep it.")
    name: str = Field(description="Its full name, by which subscribers of all domains can write to it.")


class TokenOut(ResponseModel):
    """A new token."""

    id: str
    kind: Kind
    token: str = Field(description="Returned only once. Keep it.")


class PositionOut(ResponseModel):
    """Where an entity is, since when."""

    x: float
    y: float
    time: Time


class EntityOut(ResponseModel):
    """A source, a subscriber or a gateway."""

    id: str
    kind: Kind
    attributes: Attributes
    position: PositionOut | None
    gateway: str | None = Field(default=None, description="The gateway that a source belongs to.")


class SourcesOut(ResponseModel):
    """Sources of a gateway, by id."""

    sources: list[EntityOut]
    more: bool = Field(description="Whether there are more after these.")


class MeOut(EntityOut):
    """The caller."""

    name: str | None = Field(default=None, description="The full name of a subscriber; null for others.")
    next_seq: int | None = Field(default=None, description="Number of a source's next event; null for others.")
    sources: int | None = Field(default=None, description="How many sources a gateway has; null for others.")


class WhereOut(EntityOut):
    """An entity with its subscriptions: a subscriber's own, or those that are bound to a source now."""

    subscriptions: list[str] = Field(description="Ids of the first of them.")
    count: int = Field(description="How many there are.")
    sources: int | None = Field(default=None, description="How many sources a gateway has; null for others.")


class DemandOut(BaseModel):
    """Whether a binding or subscription may use the events of the source, or of any source of the gateway."""

    demanded: bool
    sources: dict[str, bool] | None = Field(
        default=None,
        description="The same for each source of a gateway; in a stream, for those that changed. Absent for a source.",
    )
