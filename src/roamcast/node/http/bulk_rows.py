"""Rows in bulk: a JSON list or NDJSON, of which each row is accepted or refused on its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import orjson
from starlette.concurrency import run_in_threadpool

from roamcast.errors import RoamcastError
from roamcast.node.control.request_group import Outcome
from roamcast.node.http.errors import error_json
from roamcast.node.validation_errors import MalformedError, list_length_error

__all__ = ["CHUNK", "NDJSON", "Row", "Rows", "accept_each", "add_rows", "is_bulk", "read_json", "read_rows"]

NDJSON: Final = "application/x-ndjson"
CHUNK: Final = 1_000
"""Rows that are added or removed at once. Other requests are handled in between."""

Row = Any
"""A JSON value, or bytes that are not JSON."""


class Rows(Protocol):
    """Rows in order: a list, or what can be cut into chunks like one."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Row]: ...

    def __getitem__(self, part: slice, /) -> Rows: ...


T = TypeVar("T")


def is_bulk(body: bytes, media_type: str) -> bool:
    """Whether a body has many rows. If not, it is one value."""
    return media_type == NDJSON or body.lstrip()[:1] == b"["


def read_rows(body: bytes, media_type: str, name: str, most: int) -> list[Row]:
    """The rows of a JSON list, or of lines. Raises InputError if there are none or more than `most`."""
    rows: list[Row]
    if media_type == NDJSON:
        rows = [line for line in body.split(b"\n") if line.strip()]
    else:
        try:
            rows = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise MalformedError(f"not JSON: {error}", where="body", hint="send JSON in UTF-8") from None
    if not 0 < len(rows) <= most:
        raise list_length_error(len(rows), name, most)
    return rows


def read_json(body: bytes) -> Row:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body


def accept_each(rows: Rows, first: int, name: str, accept: Callable[[Row, int], T]) -> list[T | RoamcastError]:
    """What `accept` makes of each row and its number, from `first` on, or the error, which names the row."""
    accepted: list[T | RoamcastError] = []
    for number, row in enumerate(rows, first):
        try:
            accepted.append(accept(row, number))
        except RoamcastError as error:
            field = "" if error.where in (None, "body") else f".{error.where}"
            error.where = f"{name}[{number}]{field}"
            accepted.append(error)
    return accepted


async def add_rows(
    rows: Rows,
    name: str,
    accept: Callable[[Rows, int], Sequence[tuple[str, T] | RoamcastError]],
    add: Callable[[Sequence[tuple[str, T]], int], Awaitable[Sequence[Outcome]]],
    *,
    all_or_none: bool,
) -> dict[str, Any]:
    """Add rows in chunks: those that `accept`, on another thread, has an id and a value for. Returns the response.

    Both functions get a chunk and the number of its first row. With `all_or_none` there is one chunk, of which nothing
    is added if a row is refused: the first error is raised.
    """
    outcomes: list[dict[str, Any]] = []
    size = len(rows) if all_or_none else CHUNK
    for first in range(0, len(rows), size):
        accepted = await run_in_threadpool(accept, rows[first : first + size], first)
        values = [each for each in accepted if not isinstance(each, RoamcastError)]
        if all_or_none and len(values) < len(accepted):
            raise next(each for each in accepted if isinstance(each, RoamcastError))
        results = iter(await add(values, first))
        for each in accepted:
            if isinstance(each, RoamcastError):
                outcomes.append({"error": error_json(each)})
            elif isinstance(is_new := next(results), RoamcastError):
                outcomes.append({"id": each[0], "error": error_json(is_new)})
            else:
                outcomes.append({"id": each[0], "new": is_new})
    refused, added = sum("error" in each for each in outcomes), sum(each.get("new", False) for each in outcomes)
    counts = {"added": added, "existing": len(outcomes) - added - refused, "refused": refused}
    return {**counts, name: outcomes}
