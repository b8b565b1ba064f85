"""Calls to a node without I/O.

A flow is a generator. It yields an `ApiRequest` and is sent an `ApiResponse`, or a `NoResponse` if there was none; it
yields a `Pause` and is sent None. Its return value is the result of the call. The two clients only run flows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import orjson

from roamcast import errors
from roamcast.errors import ElsewhereError, InputError, RoamcastError, UnavailableError

__all__ = [
    "ApiRequest",
    "ApiResponse",
    "Flow",
    "NoResponse",
    "Outcome",
    "Pause",
    "as_list",
    "error_from",
    "error_from_json",
    "exchange",
    "json_body",
    "nothing",
    "quoted",
    "without_none",
]  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One HTTP request. `repeatable`: sending it twice has the same effect as sending it once.

    `url` and `token` replace the client's own node and token; an empty token is not sent. `extra_time` is added to the
    read timeout, in seconds.
    """

    method: str
    path: str
    body: bytes | None = None
    parameters: Mapping[str, str | int | float] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_time: float = 0.0
    repeatable: bool = True
    url: str | None = None
    token: str | None = None


class ApiResponse(NamedTuple):
    """Status and body of an HTTP response."""

    status: int
    body: bytes


class NoResponse(NamedTuple):
    """There was no response. `sent`: the node may have received the request. `url` is the node that was called."""

    reason: str
    sent: bool
    url: str | None = None


class Pause(NamedTuple):
    """Wait before the next step."""

    seconds: float


Outcome = ApiResponse | NoResponse
Flow = Generator[ApiRequest | Pause, Outcome | None, T]


def exchange(
    request: ApiRequest,
    delays: Sequence[float],
    read: Callable[[Any], T],
    *,
    gone: int | None = None,
    read_again: Callable[[Any], T] | None = None,
    refused: Callable[[], None] = lambda: None,
) -> Flow[T]:
    """Send a request, retrying after each of `delays` seconds while the node is unreachable or answers 5xx.

    `read` turns the JSON body into the result. The status `gone` counts as success if an earlier attempt may have
    reached the node; then `read_again` replaces `read`. Raises the node's own error, or UnavailableError. `refused` is
    called before that if no attempt can have had an effect.
    """
    maybe_received = False
    for delay in (*delays, None):
        outcome = yield request
        if isinstance(outcome, ApiResponse):
            if outcome.status < 300:
                return _read_body(outcome, read_again if read_again and maybe_received else read)
            if outcome.status == gone and maybe_received:
                return read(None)
            can_retry = request.repeatable and outcome.status >= 500
            maybe_received = maybe_received or outcome.status >= 500
        else:
            outcome = outcome or NoResponse("no response", sent=False)
            can_retry = request.repeatable or not outcome.sent
            maybe_received = maybe_received or outcome.sent
        if delay is None or not can_retry:
            error = error_from(outcome)
            if not maybe_received and not isinstance(error, UnavailableError):
                refused()
            raise error
        yield Pause(delay)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _read_body(response: ApiResponse, read: Callable[[Any], T]) -> T:
    try:
        return read(orjson.loads(response.body) if response.body else None)
    except (ValueError, LookupError, TypeError):
        raise _not_a_node(response) from None


_BY_CODE: dict[str, type[RoamcastError]] = {
    kind.code: kind
    for name in errors.__all__
    if issubclass(kind := getattr(errors, name), RoamcastError) and kind is not RoamcastError
}


def error_from(outcome: Outcome) -> RoamcastError:
    """The error that the node reported, as the same class; UnavailableError if no node answered."""
    if isinstance(outcome, NoResponse):
        return UnavailableError(
            f"the node does not respond: {outcome.reason}",
            where=outcome.url,
            hint="check the address, and that the node is running: `roamcast up`",
        )
    try:
        fields = orjson.loads(outcome.body)["error"]
        return error_from_json(fields, UnavailableError if outcome.status >= 500 else RoamcastError)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        return _not_a_node(outcome)


def error_from_json(fields: Mapping[str, Any], unknown: type[RoamcastError] = RoamcastError) -> RoamcastError:
    """The error in a response; of class `unknown` if its code is."""
    message, where, hint = fields["message"], fields.get("where"), fields.get("hint")
    if "excerpt" in fields:
        from roamcast.lacl.errors import LaclError  # imports the parser, which other calls do not need

        at: dict[str, Any] = {"line": fields.get("line"), "column": fields.get("column")}
        return LaclError(message, where=where, hint=hint, excerpt=fields["excerpt"], **at)
    error = _BY_CODE.get(fields["code"], unknown)(message, where=where, hint=hint)
    if isinstance(error, ElsewhereError):
        error.office, error.epoch = fields.get("office"), fields.get("epoch", 0)
    return error


def _not_a_node(response: ApiResponse) -> UnavailableError:
    return UnavailableError(
        f"the response (HTTP {response.status}) is not from a roamcast node",
        hint="check the address: --url, ROAMCAST_URL",
    )


def json_body(value: object) -> bytes:
    """Encode as JSON. Raises InputError for values that JSON does not have, such as NaN."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise InputError(f"cannot be sent as JSON: {error}", hint="use finite numbers, strings and lists") from error


def quoted(text: str) -> str:
    return quote(text, safe="")


def without_none(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def as_list(texts: Iterable[str]) -> list[str]:
    """A single string is one item, not its characters."""
    return [texts] if isinstance(texts, str) else list(texts)


def nothing(reply: object) -> None:
    return None
