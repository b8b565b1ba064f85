"""Subscriptions, their bindings, and explanations of matches."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, RootModel

from roamcast.node.http.schemas.base import ResponseModel, Time
from roamcast.node.http.schemas.errors import ErrorFields

__all__ = [
    "AddedOut", "BindingsOut", "ExplanationOut", "RemovedOut", "ReplacedOut", "SubscriptionIdOut", "SubscriptionOut",
    "SubscriptionsOut",
]  # fmt: skip


class SubscriptionIdOut(ResponseModel):
    """A subscription."""

    id: str


class AddedSubscriptionOut(SubscriptionIdOut):
    """A subscription of a list."""

    new: bool = Field(description="False if the same subscription existed already.")


class RefusedSubscriptionOut(BaseModel):
    """A row of a list with which nothing was done."""

    id: str = Field(default="", description="Absent if the row could not be read.")
    error: ErrorFields


class AddedSubscriptionsOut(ResponseModel):
    """What became of each subscription of a list, in the same order."""

    added: int
    existing: int
    refused: int
    subscriptions: list[AddedSubscriptionOut | RefusedSubscriptionOut]


class AddedOut(RootModel[AddedSubscriptionsOut | SubscriptionIdOut]):
    """What became of a list, or the id of a subscription that existed already."""


class ReplacedOut(SubscriptionIdOut):
    """The subscription has the query."""

    replaced: bool = Field(description="False if it had this query already.")


class RemovedOut(ResponseModel):
    """What became of each id, in the same order."""

    removed: int
    refused: int
    subscriptions: list[RefusedSubscriptionOut | SubscriptionIdOut]


class SubscriptionOut(ResponseModel):
    """A subscription and its state.

    `start`: no source found yet. `inactive`: its source is gone. `stop`: its life-control does not hold. Because of
    other hosts: `starting`, they have not confirmed it yet; `partial`, some do not respond; `unreachable`, those of all
    its sources do not.
    """

    id: str
    subscriber: str
    lacl: str = Field(description="The query in canonical form.")
    plan: Literal["bind", "match"]
    state: Literal["start", "active", "inactive", "stop", "starting", "partial", "unreachable"]
    sources: list[str] = Field(description="Sources that it is bound to.")
    since: Time = Field(description="When the state began.")
    why: str | None = Field(description="Why it receives nothing, or not everything.")
    peers: list[str] = Field(default=[], description="The other hosts that cause the state.")


class SubscriptionsOut(ResponseModel):
    """Subscriptions, by id."""

    subscriptions: list[SubscriptionOut]
    more: bool = Field(description="Whether there are more after these.")


class BindingOut(ResponseModel):
    """A source that a subscription was bound to."""

    source: str
    bound_at: Time
    unbound_at: Time | None = Field(description="Null while the binding lasts.")


class BindingsOut(ResponseModel):
    """Bindings, newest first."""

    bindings: list[BindingOut]
    more: bool = Field(description="Whether there are older ones.")


class CheckOut(ResponseModel):
    """One of the checks of a match."""

    check: str
    holds: bool | None = Field(description="Null: this node cannot tell.")
    why: str


class ExplanationOut(ResponseModel):
    """Why an event would match a subscription or not."""

    subscription: str
    matches: bool | None = Field(description="False if any check fails, true if all hold, else null.")
    checks: list[CheckOut]
