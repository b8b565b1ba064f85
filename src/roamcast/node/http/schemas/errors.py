"""Error responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, Field

__all__ = ["ERRORS", "ErrorFields", "ErrorOut", "error_example"]


class ErrorFields(BaseModel):
    """What was wrong."""

    code: str = Field(description="Stable and machine-readable.")
    message: str
    where: str | None = Field(description="The field, parameter, header or thing concerned.")
    hint: str | None = Field(description="What to do.")
    line: int | None = Field(default=None, description="Line of the LACL query, from 1, like the column.")
    column: int | None = None
    excerpt: str = Field(default="", description="The line of the LACL query, with carets below it.")
    office: str | None = Field(default=None, description="With code `elsewhere`: the office that has the mailbox.")
    epoch: int = Field(default=0, description="With code `elsewhere`: the epoch of its last arrival.")


class ErrorOut(BaseModel):
    """An error. Nothing was applied, unless the hint says otherwise."""

    error: ErrorFields


class ErrorStatus(NamedTuple):
    """What an HTTP status means in general, and an example."""

    summary: str
    example: Mapping[str, Any]


def error_example(code: str, message: str, where: str | None, hint: str) -> dict[str, Any]:
    """The body of an error response."""
    return {"error": {"code": code, "message": message, "where": where, "hint": hint}}


ERRORS: Final[Mapping[int, ErrorStatus]] = {
    400: ErrorStatus(
        "The body is not JSON.",
        error_example(
            "bad_input", "invalid JSON: EOF while parsing an object at line 1 column 1", "body", "send JSON in UTF-8"
        ),
    ),
    401: ErrorStatus(
        "The token is missing or unknown.",
        error_example(
            "unauthenticated", "unknown token", "Authorization", "use the token returned by the registration"
        ),
    ),
    403: ErrorStatus(
        "The token is not allowed to do this.",
        error_example("forbidden", "mic-1 is not a subscriber", "Authorization", "use the token of a subscriber"),
    ),
    404: ErrorStatus(
        "There is no such thing.",
        error_example("not_found", "no subscription with this id", "fire", "list your subscriptions to see their ids"),
    ),
    409: ErrorStatus(
        "The request conflicts with the current state. Code `elsewhere`: another office has the mailbox of the caller.",
        error_example("conflict", "this id or its token is already in use", "anna", "choose another id"),
    ),
    413: ErrorStatus(
        "The body is too large.",
        error_example("capacity", "the body is larger than 8388608 bytes", "body", "split the request"),
    ),
    422: ErrorStatus(
        "A field or parameter is unknown, missing or invalid.",
        error_example(
            "bad_input",
            "unknown field 'term'",
            "term",
            "did you mean 'terms'? known: box, crosses_antimeridian, id, lacl, since, terms",
        ),
    ),
    429: ErrorStatus(
        "A limit is reached.",
        error_example(
            "capacity", "16 streams or polls of this mailbox are already open", "local.node.anna", "close one"
        ),
    ),
    500: ErrorStatus("The node failed.", error_example("internal", "internal error", None, "see the log of the node")),
    503: ErrorStatus(
        "The node, or a peer that it needs, does not respond. Repeat the request later.",
        error_example("unavailable", "the mailbox has not arrived yet", "anna", "arrive again with the same epoch"),
    ),
    507: ErrorStatus(
        "The disk is full, read-only or failing. Nothing was acknowledged.",
        error_example("storage", "the disk is full", "journal", "free some disk space; acknowledged data is safe"),
    ),
}
