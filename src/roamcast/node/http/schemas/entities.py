"""Sources, subscribers and demand."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from roamcast.node.http.schemas.base import Attributes, ResponseModel, Time

__all__ = ["DemandOut", "EntityOut", "MeOut", "PositionOut", "SourceOut", "SubscriberOut", "TokenOut", "WhereOut"]

Kind = Literal["source", "subscriber"]


class SourceOut(ResponseModel):
    """A registered source."""

    id: str
    kind: Literal["source"] = "source"
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
    """A source or a subscriber."""

    id: str
    kind: Kind
    attributes: Attributes
    position: PositionOut | None


class MeOut(EntityOut):
    """The caller."""

    name: str | None = Field(default=None, description="The full name of a subscriber; null for a source.")
    next_seq: int | None = Field(default=None, description="Number of a source's next event; null for a subscriber.")


class WhereOut(EntityOut):
    """An entity with its subscriptions: a subscriber's own, or those that are bound to a source now."""

    subscriptions: list[str] = Field(description="Ids of the first of them.")
    count: int = Field(description="How many there are.")


class DemandOut(ResponseModel):
    """Whether a binding or subscription may use the events of the source."""

    demanded: bool
