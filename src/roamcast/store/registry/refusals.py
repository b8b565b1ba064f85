"""What every store says when it is asked for something it cannot do."""

from __future__ import annotations

from roamcast.errors import ConflictError, NotFoundError

__all__ = [
    "entity_taken",
    "id_used_up",
    "subscription_taken",
    "unknown_entity",
    "unknown_source",
    "unknown_subscription",
]


def entity_taken(id: str) -> ConflictError:
    return ConflictError("this id, or its token, is taken", where=id, hint="choose another id")


def id_used_up(id: str, was: str) -> ConflictError:
    """A subscriber's id is never given again: a new token must not open an old mailbox."""
    return ConflictError(f"this id was a {was}'s, who has left", where=id, hint="choose another id")


def subscription_taken(id: str) -> ConflictError:
    return ConflictError("this subscription id is taken", where=id, hint="choose another id")


def unknown_entity(id: str) -> NotFoundError:
    return NotFoundError("nothing is registered under this id", where=id, hint="register it first")


def unknown_source(id: str) -> NotFoundError:
    return NotFoundError("no source is registered under this id", where=id, hint="register it first")


def unknown_subscription(id: str) -> NotFoundError:
    return NotFoundError("there is no such subscription", where=id, hint="list yours to see their ids")
