"""What every store says when it is asked for something it cannot do."""

from __future__ import annotations

from roamcast.errors import ConflictError, InputError, NotFoundError

__all__ = [
    "bad_limit",
    "entity_taken",
    "id_used_up",
    "no_such_place",
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


def bad_limit(limit: int) -> InputError:
    return InputError(f"a limit of {limit} letters", where="limit", hint="ask for at least one")


def no_such_place(through: int, next_place: int) -> InputError:
    held = f"places 1 to {next_place - 1}" if next_place > 1 else "no letter yet"
    return InputError(f"no letter has had place {through}", where="through", hint=f"this mailbox has had {held}")
