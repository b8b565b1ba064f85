"""What the client hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Accepted",
    "Binding",
    "Letter",
    "Sent",
    "Subscription",
    "Trace",
    "binding_of",
    "letter_of",
    "subscription_of",
]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Events that are safe at the node: how many, and the numbers of the first and the last."""

    accepted: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter out of one's own mailbox. `place` says where it lies there; `event` is plain JSON values.

    `why` says why it came; None where the pipeline did not say. A letter of another subscriber, whose name is `sender`,
    has a `title` and a `message` instead of a subscription and an event.
    """

    place: int
    sender: str
    number: int
    subscription: str
    event: Mapping[str, Any]
    why: str | None = None
    title: str | None = None
    message: Any = None


@dataclass(frozen=True, slots=True)
class Sent:
    """A letter that is safe at an office: names of both, and its number among those of the one to the other."""

    sender: str
    receiver: str
    number: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What became of a letter, as `office` knows: queued, not arrived, held back, readable, acknowledged, expired, or
    no receiver.
    """

    receiver: str
    number: int
    fate: str
    office: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as it is now, in the canonical form of LACL.

    `state` is `start` (no source found yet), `active`, `inactive` (its source is lost) or `stop` (its life-control does
    not hold), so `since` a time in ISO 8601; `why` it hears nothing is None while it is active.
    """

    id: str
    subscriber: str
    text: str
    plan: str
    state: str
    sources: tuple[str, ...]
    since: str
    why: str | None


@dataclass(frozen=True, slots=True)
class Binding:
    """A source that a subscription had, from when to when in ISO 8601; `unbound_at` is None while it has it."""

    source: str
    bound_at: str
    unbound_at: str | None


def letter_of(fields: Mapping[str, Any]) -> Letter:
    head = fields["place"], fields["sender"], fields["number"]
    if "message" in fields:
        return Letter(*head, "", {}, title=fields.get("title"), message=fields["message"])
    return Letter(*head, fields["subscription"], fields["event"], why=fields.get("why"))


def subscription_of(fields: Mapping[str, Any]) -> Subscription:
    names = ("id", "subscriber", "text", "plan", "state")
    id, subscriber, text, plan, state = (fields[name] for name in names)
    return Subscription(id, subscriber, text, plan, state, tuple(fields["sources"]), fields["since"], fields["why"])


def binding_of(fields: Mapping[str, Any]) -> Binding:
    return Binding(fields["source"], fields["bound_at"], fields["unbound_at"])
