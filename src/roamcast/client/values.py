"""Values that the client returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roamcast.errors import RoamcastError

__all__ = [
    "Binding",
    "Letter",
    "LetterTrace",
    "MailboxLetters",
    "PublishReceipt",
    "SendReceipt",
    "SourceResult",
    "Subscription",
    "SubscriptionResult",
    "binding_from_json",
    "letter_from_json",
    "subscription_from_json",
]


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """Events that are durable at the node: how many, and the first and the last sequence number."""

    accepted: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter from the subscriber's own mailbox.

    `offset` is its offset in the mailbox. `event` is plain JSON values. `why` says why the event matched; None if the
    pipeline did not say. A letter from another subscriber has its name as `sender`, and `title` and `message` instead
    of `subscription` and `event`.
    """

    offset: int
    sender: str
    number: int
    subscription: str
    event: Mapping[str, Any]
    why: str | None = None
    title: str | None = None
    message: Any = None


@dataclass(frozen=True, slots=True)
class MailboxLetters:
    """The next letters of a mailbox, and how many are waiting in it, including these; or why it was not pulled."""

    letters: tuple[Letter, ...]
    waiting: int
    error: RoamcastError | None = None


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """A letter that is durable at an office: full names of both sides, and its number from this sender to this
    receiver.
    """

    sender: str
    receiver: str
    number: int


@dataclass(frozen=True, slots=True)
class LetterTrace:
    """What became of a letter, as `office` knows.

    `state` is one of: queued, not_arrived, held_back, readable, acknowledged, expired, no_receiver.
    """

    receiver: str
    number: int
    state: str
    office: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """The current state of a subscription. `lacl` is its query in canonical form.

    `state` is `start` (no source found yet), `active`, `inactive` (its source is gone) or `stop` (its life-control
    does not hold); or, because of other hosts, `starting` (they have not confirmed it yet), `partial` (some do not
    respond) or `unreachable` (those of all its sources do not). `since` is when the state began, in ISO 8601. `why`
    says why it receives nothing, or not everything; None while active. `peers` are the domains of those other hosts.
    """

    id: str
    subscriber: str
    lacl: str
    plan: str
    state: str
    sources: tuple[str, ...]
    since: str
    why: str | None
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionResult:
    """What became of one of many subscriptions to add or to remove.

    `changed`: it was added or removed; False if it existed already. `error` says why it was refused; None if it was
    not. `id` is None if it was refused before it had one.
    """

    id: str | None
    changed: bool
    error: RoamcastError | None = None


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What became of one of many sources to register.

    `changed`: it was registered; False if the gateway had it already. `error` says why it was refused; None if it was
    not. `id` is None if it was refused before it was read.
    """

    id: str | None
    changed: bool
    error: RoamcastError | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """A source that a subscription was bound to. Times are ISO 8601; `unbound_at` is None while the binding lasts."""

    source: str
    bound_at: str
    unbound_at: str | None


def letter_from_json(fields: Mapping[str, Any]) -> Letter:
    head = fields["offset"], fields["sender"], fields["number"]
    if "message" in fields:
        return Letter(*head, "", {}, title=fields.get("title"), message=fields["message"])
    return Letter(*head, fields["subscription"], fields["event"], why=fields.get("why"))


def subscription_from_json(fields: Mapping[str, Any]) -> Subscription:
    names = ("id", "subscriber", "lacl", "plan", "state", "since", "why")
    sources, peers = tuple(fields["sources"]), tuple(fields["peers"])
    return Subscription(**{name: fields[name] for name in names}, sources=sources, peers=peers)


def binding_from_json(fields: Mapping[str, Any]) -> Binding:
    return Binding(fields["source"], fields["bound_at"], fields["unbound_at"])
