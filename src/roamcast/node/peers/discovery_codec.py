"""Discovery requests and responses between nodes, as JSON."""

from __future__ import annotations

import re
from math import inf, isfinite
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from roamcast.bind.discovery.cells import LEVELS
from roamcast.bind.discovery.messages import DiscoveryRequest, DiscoveryResponse, SourceAnnouncement
from roamcast.errors import InputError, RoamcastError
from roamcast.model import LATEST
from roamcast.node.validation_errors import first_problem
from roamcast.space import Space
from roamcast.validation import ID

__all__ = ["SourcesRequest", "SourcesResponse", "decode_request", "decode_response", "encode"]

T = TypeVar("T")


class SourcesRequest(NamedTuple):
    """A discovery request, how many seconds its response may wait for an announcement, and the sender's position."""

    request: DiscoveryRequest
    wait: float
    at: tuple[float, float] | None


class SourcesResponse(NamedTuple):
    """A discovery response, and the position of the node that sends it."""

    response: DiscoveryResponse
    at: tuple[float, float] | None


_ID: Final = re.compile(ID)
_FARTHEST: Final = 2**62  # column or row of a cell
_MOST_REQUESTS: Final = 2_000
_MOST_ANNOUNCEMENTS: Final = 1_000
_MOST_ATTRIBUTES: Final = 1_000
_REQUEST: Final = TypeAdapter(SourcesRequest)
_RESPONSE: Final = TypeAdapter(SourcesResponse)


def encode(value: SourcesRequest | SourcesResponse) -> bytes:
    return orjson.dumps(value._asdict(), default=_plain)


def decode_request(body: bytes, space: Space) -> SourcesRequest:
    """Raises InputError, also for requests that no node would send. May take a while."""
    decoded = _decode(_REQUEST, body)
    requests = decoded.request.interest.requests if decoded.request.interest else ()
    try:
        if len(requests) > _MOST_REQUESTS:
            raise ValueError(f"{len(requests)} requests")
        if not 0 <= decoded.wait < inf:
            raise ValueError(f"a wait of {decoded.wait} seconds")
        _check_point(decoded.at, space)
        for request in requests:
            request.accepts({})
            if request.cell is not None and (
                request.cell.level not in LEVELS or max(map(abs, request.cell)) > _FARTHEST
            ):
                raise ValueError(f"cell {request.cell}")
    except (ValueError, RoamcastError) as error:
        raise _invalid(error) from error
    return decoded


def decode_response(body: bytes, space: Space) -> SourcesResponse:
    """Raises InputError, also for sources that could not be registered here."""
    decoded = _decode(_RESPONSE, body)
    try:
        if len(decoded.response.announcements) > _MOST_ANNOUNCEMENTS:
            raise ValueError(f"{len(decoded.response.announcements)} sources")
        _check_point(decoded.at, space)
        for announcement in decoded.response.announcements:
            _check_announcement(announcement, space)
    except (ValueError, RoamcastError) as error:
        raise _invalid(error) from error
    return decoded


def _check_announcement(announcement: SourceAnnouncement, space: Space) -> None:
    if not _ID.fullmatch(announcement.source):
        raise ValueError(f"{announcement.source[:200]!r} is not an id")
    numbers = [value for value in (announcement.attributes or {}).values() if isinstance(value, float)]
    if len(announcement.attributes or {}) > _MOST_ATTRIBUTES or not all(map(isfinite, numbers)):
        raise ValueError(f"invalid attributes of {announcement.source}")
    if (at := announcement.position) is not None:
        space.check_point(at.x, at.y)
        if abs(at.time) > LATEST:
            raise ValueError(f"position of {announcement.source} at time {at.time}")


def _check_point(at: tuple[float, float] | None, space: Space) -> None:
    if at is not None:
        space.check_point(*at)


def _decode(adapter: TypeAdapter[T], body: bytes) -> T:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise _invalid(first_problem(error)) from None


def _invalid(problem: Exception | str) -> InputError:
    return InputError(
        f"not a discovery message: {problem}", where="body", hint="run the same version of roamcast on both nodes"
    )


def _plain(value: Any) -> Any:
    """Sets and named tuples as lists."""
    return list(value)
