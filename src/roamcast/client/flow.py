"""How a call to a node goes, without doing it: requests and pauses out, answers in.

A flow is a generator. It yields a `Request` and is sent an `Answer` or the `Failure` to get one; it yields a
`Pause` and is sent None. What it returns is the result. `Client` and `AsyncClient` only run flows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from roamcast import errors
from roamcast.errors import ElsewhereError, InputError, RoamcastError, UnavailableError

__all__ = ["Answer", "Failure", "Flow", "Pause", "Request", "Step", "Stream", "body_of", "error_of", "exchange"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `safe` says that sending it again does no harm.

    `at` is the node's address and `token` the token to use, if not the client's; an empty one is not sent.
    """

    method: str
    path: str
    body: bytes | None = None
    parameters: Mapping[str, str | int | float] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_time: float = 0.0
    safe: bool = True
    at: str | None = None
    token: str | None = None


class Answer(NamedTuple):
    status: int
    body: bytes


class Failure(NamedTuple):
    """There was no answer. `sent` says whether the node may have got the request."""

    reason: str
    sent: bool


class Pause(NamedTuple):
    seconds: float


Step = Request | Pause
Flow = Generator[Step, Answer | Failure | None, T]


class Stream(Protocol[T_co]):
    """What is heard from a node for as long as one listens, over as many requests as that takes."""

    def request(self) -> Request:
        """What to send, for the first time or again."""

    def feed(self, piece: bytes) -> Sequence[T_co]:
        """What is new."""

    def broken(self, outcome: Answer | Failure) -> tuple[Sequence[T_co], float]:
        """What is to be taken for true then, and how many seconds to wait before the next try.

        Raises what cannot be mended by trying again.
        """


def exchange(
    request: Request,
    delays: Sequence[float],
    read: Callable[[Any], T],
    *,
    gone: int | None = None,
) -> Flow[T]:
    """Send until there is an answer that is not the node's trouble, at most once more than there are delays.

    The status `gone` counts as success if an earlier try may have reached the node.
    """
    maybe_reached = False
    for delay in (*delays, None):
        outcome = yield request
        if isinstance(outcome, Answer):
            if outcome.status < 300:
                return _read(outcome, read)
            if outcome.status == gone and maybe_reached:
                return read(None)
            again = request.safe and outcome.status >= 500
            maybe_reached = True
        else:
            outcome = outcome or Failure("no answer", sent=False)
            again = request.safe or not outcome.sent
            maybe_reached = maybe_reached or outcome.sent
        if delay is None or not again:
            raise error_of(outcome)
        yield Pause(delay)
    raise AssertionError("unreachable: the last try returns or raises")


def _read(answer: Answer, read: Callable[[Any], T]) -> T:
    try:
        return read(json.loads(answer.body) if answer.body else None)
    except (ValueError, LookupError, TypeError):
        raise _not_a_nodes(answer) from None


_BY_CODE: dict[str, type[RoamcastError]] = {
    kind.code: kind
    for name in errors.__all__
    if issubclass(kind := getattr(errors, name), RoamcastError) and kind is not RoamcastError
}


def error_of(answer: Answer | Failure) -> RoamcastError:
    """The error that the node raised, as the same class; UnavailableError where there is no node."""
    if isinstance(answer, Failure):
        return UnavailableError(
            f"the node does not answer: {answer.reason}",
            hint="check the address (--url, ROAMCAST_URL) and that the node runs: `roamcast node`",
        )
    try:
        error = json.loads(answer.body)["error"]
        message, where, hint = error["message"], error.get("where"), error.get("hint")
        if "excerpt" in error:
            from roamcast.lacl.errors import LaclError  # brings the parser along, which nobody else here needs

            place = {"line": error.get("line"), "column": error.get("column")}
            return LaclError(message, where=where, hint=hint, excerpt=error["excerpt"], **place)
        if error["code"] == ElsewhereError.code:
            elsewhere = ElsewhereError(message, where=where, hint=hint)
            elsewhere.office, elsewhere.epoch = error.get("office"), error.get("epoch", 0)
            return elsewhere
        kind = _BY_CODE.get(error["code"], UnavailableError if answer.status >= 500 else RoamcastError)
        return kind(message, where=where, hint=hint)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        return _not_a_nodes(answer)


def _not_a_nodes(answer: Answer) -> UnavailableError:
    return UnavailableError(
        f"the answer (HTTP {answer.status}) is not a roamcast node's", hint="check the address: --url, ROAMCAST_URL"
    )


def body_of(value: object) -> bytes:
    """JSON text. Raises InputError for what JSON cannot say, such as NaN."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise InputError(f"this cannot be sent as JSON: {error}", hint="use finite numbers, texts and lists") from error
