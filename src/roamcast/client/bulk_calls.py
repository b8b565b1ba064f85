"""What calls about many rows have in common: requests of a bounded size, pages, and a result for each row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from roamcast.client.flow import ApiRequest, Flow, error_from_json
from roamcast.client.values import SourceResult, SubscriptionResult
from roamcast.errors import InputError

__all__ = ["BULK", "BULK_TIME", "BulkCalls", "row_results", "rows_of"]

BULK: Final = 5_000
"""Rows in a request."""
BULK_TIME: Final = 50.0
"""Seconds more that such a request may take."""

T = TypeVar("T")
R = TypeVar("R", SubscriptionResult, SourceResult)


class BulkCalls(ABC):
    """The base of the parts of `ApiCalls`."""

    @abstractmethod
    def _call(
        self,
        request: ApiRequest,
        read: Callable[[Any], T],
        gone: int | None = None,
        read_again: Callable[[Any], T] | None = None,
    ) -> Flow[T]:
        """A call about the entity itself. For the rest see `exchange`."""

    def _pages(
        self, path: str, name: str, read: Callable[[Mapping[str, Any]], T], id_of: Callable[[T], str]
    ) -> Flow[list[T]]:
        """All items of a list that has pages, ordered by id."""
        items: list[T] = []
        has_more = True
        while has_more:
            parameters = {"after": id_of(items[-1])} if items else {}
            page, has_more = yield from self._call(
                ApiRequest("GET", path, parameters=parameters),
                lambda reply: ([read(item) for item in reply[name]], bool(reply["more"])),
            )
            items += page
        return items


def rows_of(name: str, rows: Any) -> list[Any]:
    """The rows that a user passes. Raises InputError for a single one, of which an iteration has only the keys."""
    if isinstance(rows, Mapping | str):
        raise InputError(f"one of the {name}, not several", where=name, hint="pass a list")
    return list(rows)


def row_results(name: str, kind: type[R], first: int, reply: Any) -> list[R]:
    """Rows of the node's response. `first`: how many rows earlier requests had."""
    results = []
    for number, row in enumerate(reply[name], first):
        error = row.get("error")
        if error is not None:
            error = error_from_json(error)
            _, bracket, field = (error.where or "").partition("]")
            error.where = f"{name}[{number}]{field}" if bracket else error.where
        results.append(kind(row.get("id"), error is None and row.get("new", True), error))
    return results
