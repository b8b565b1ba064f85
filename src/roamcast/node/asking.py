"""Questions and answers between nodes about their sources, as JSON."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from roamcast.bind.discovery import Answer, Ask
from roamcast.errors import InputError, RoamcastError
from roamcast.node.bodies import ID
from roamcast.space import Space

__all__ = ["Asked", "Told", "decode_asked", "decode_told", "encode"]

T = TypeVar("T")


class Asked(NamedTuple):
    """A question, for how many seconds the answer may be waited for, and where the node is that asks."""

    ask: Ask
    wait: float
    at: tuple[float, float] | None


class Told(NamedTuple):
    """An answer, and where the node is that gives it."""

    answer: Answer
    at: tuple[float, float] | None


_ID: Final = re.compile(ID)
_ASKED: Final = TypeAdapter(Asked)
_TOLD: Final = TypeAdapter(Told)


def encode(value: Asked | Told) -> bytes:
    return orjson.dumps(value._asdict(), default=_plain)


def decode_asked(body: bytes) -> Asked:
    """Raises InputError, also for a condition that cannot be read."""
    asked = _decoded(_ASKED, body)
    try:
        for request in asked.ask.interest.requests if asked.ask.interest else ():
            request.admits({})
    except RoamcastError as error:
        raise _refusal(error) from error
    return asked


def decode_told(body: bytes, space: Space) -> Told:
    """Raises InputError, also for a source that could not be registered here."""
    told = _decoded(_TOLD, body)
    for news in told.answer.news:
        if not _ID.fullmatch(news.source):
            raise _refusal(ValueError(f"{news.source[:200]!r} is no id"))
        if news.position is not None:
            space.check_point(news.position.x, news.position.y)
    return told


def _decoded(adapter: TypeAdapter[T], body: bytes) -> T:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from error


def _refusal(error: Exception) -> InputError:
    return InputError(f"not between nodes: {error}", where="body", hint="both nodes need the same version of roamcast")


def _plain(value: Any) -> Any:
    """Sets, and tuples with names, as lists."""
    return list(value)
