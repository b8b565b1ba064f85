"""Questions and answers between nodes about their sources, as JSON."""

from __future__ import annotations

import re
from math import inf, isfinite
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from roamcast.bind.discovery.messages import DiscoveryRequest, DiscoveryResponse, SourceAnnouncement
from roamcast.errors import InputError, RoamcastError
from roamcast.node.schemas import ID
from roamcast.space import Space

__all__ = ["Asked", "Told", "decode_asked", "decode_told", "encode"]

T = TypeVar("T")


class Asked(NamedTuple):
    """A question, for how many seconds the answer may be waited for, and where the node is that asks."""

    ask: DiscoveryRequest
    wait: float
    at: tuple[float, float] | None


class Told(NamedTuple):
    """An answer, and where the node is that gives it."""

    answer: DiscoveryResponse
    at: tuple[float, float] | None


_ID: Final = re.compile(ID)
_MOST_REQUESTS: Final = 2_000
_MOST_NEWS: Final = 1_000
_MOST_ATTRIBUTES: Final = 1_000
_LATEST: Final = 253_402_300_799_999_999  # the end of the year 9999, in microseconds
_ASKED: Final = TypeAdapter(Asked)
_TOLD: Final = TypeAdapter(Told)


def encode(value: Asked | Told) -> bytes:
    return orjson.dumps(value._asdict(), default=_plain)


def decode_asked(body: bytes, space: Space) -> Asked:
    """Raises InputError, also for what no node would ask. It may take a while."""
    asked = _decoded(_ASKED, body)
    requests = asked.ask.interest.requests if asked.ask.interest else ()
    try:
        if len(requests) > _MOST_REQUESTS:
            raise ValueError(f"{len(requests)} requests")
        if not 0 <= asked.wait < inf:
            raise ValueError(f"to wait for {asked.wait} seconds")
        _check_point(asked.at, space)
        for request in requests:
            request.admits({})
    except (ValueError, RoamcastError) as error:
        raise _refusal(error) from error
    return asked


def decode_told(body: bytes, space: Space) -> Told:
    """Raises InputError, also for a source that could not be registered here."""
    told = _decoded(_TOLD, body)
    try:
        if len(told.answer.announcements) > _MOST_NEWS:
            raise ValueError(f"{len(told.answer.announcements)} sources")
        _check_point(told.at, space)
        for news in told.answer.announcements:
            _check_news(news, space)
    except (ValueError, RoamcastError) as error:
        raise _refusal(error) from error
    return told


def _check_news(news: SourceAnnouncement, space: Space) -> None:
    if not _ID.fullmatch(news.source):
        raise ValueError(f"{news.source[:200]!r} is no id")
    numbers = [value for value in (news.attributes or {}).values() if isinstance(value, float)]
    if len(news.attributes or {}) > _MOST_ATTRIBUTES or not all(map(isfinite, numbers)):
        raise ValueError(f"attributes of {news.source}")
    if (at := news.position) is not None:
        space.check_point(at.x, at.y)
        if abs(at.time) > _LATEST:
            raise ValueError(f"a position of {news.source} at {at.time}")


def _check_point(at: tuple[float, float] | None, space: Space) -> None:
    if at is not None:
        space.check_point(*at)


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
