"""The calls of the HTTP API about subscriptions, as flows."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from roamcast.client.arrow_tables import ARROW_STREAM, ArrowTable, as_table, stream_body
from roamcast.client.flow import ApiRequest, Flow, as_list, error_from_json, json_body, nothing, quoted, without_none
from roamcast.client.values import (
    Binding,
    Subscription,
    SubscriptionResult,
    binding_from_json,
    subscription_from_json,
)
from roamcast.errors import InputError

__all__ = ["SubscriptionCalls"]

_BULK = 5_000  # subscriptions in a request
_BULK_TIME = 50.0  # seconds more that such a request may take
_ARROW = {"content-type": ARROW_STREAM}

T = TypeVar("T")


class SubscriptionCalls(ABC):
    """The part of `ApiCalls` about subscriptions."""

    @abstractmethod
    def _call(self, request: ApiRequest, read: Callable[[Any], T], gone: int | None = None) -> Flow[T]:
        """A call about the entity itself."""

    def subscribe(
        self,
        lacl: str | None,
        box: Sequence[float] | None,
        crosses_antimeridian: bool,
        terms: Iterable[str],
        id: str | None,
    ) -> Flow[str]:
        # The id is chosen here, so that a retry after a lost response is the same subscription.
        fields = {"id": id or uuid.uuid4().hex, **_query_fields(lacl, box, crosses_antimeridian, terms)}
        return self._call(ApiRequest("POST", "/v1/subscriptions", json_body(fields)), lambda reply: str(reply["id"]))

    def subscribe_many(
        self, subscriptions: Iterable[Mapping[str, Any]] | ArrowTable, all_or_none: bool, key: str | None
    ) -> Flow[list[SubscriptionResult]]:
        table = as_table(subscriptions)
        rows: Any = list(cast("Iterable[Mapping[str, Any]]", subscriptions)) if table is None else table
        results: list[SubscriptionResult] = []
        key = key or uuid.uuid4().hex  # so that a retry after a lost response adds nothing twice
        size = max(1, len(rows)) if all_or_none else _BULK
        for first in range(0, len(rows), size):
            parameters = {"idempotency_key": f"{key}:{first}", "all_or_none": str(all_or_none).lower()}
            part = rows[first : first + size]
            body, headers = (json_body(part), {}) if table is None else (stream_body(part), _ARROW)
            request = ApiRequest("POST", "/v1/subscriptions", body, parameters, headers, extra_time=_BULK_TIME)
            results += yield from self._call(request, partial(_results, first))
        return results

    def replace(
        self,
        id: str,
        lacl: str | None,
        box: Sequence[float] | None,
        crosses_antimeridian: bool,
        terms: Iterable[str],
    ) -> Flow[bool]:
        body = json_body(_query_fields(lacl, box, crosses_antimeridian, terms))
        request = ApiRequest("PUT", f"/v1/subscriptions/{quoted(id)}", body)
        return self._call(request, lambda reply: bool(reply["replaced"]))

    def unsubscribe_many(self, ids: Iterable[str]) -> Flow[list[SubscriptionResult]]:
        rows = list(ids)
        results: list[SubscriptionResult] = []
        for first in range(0, len(rows), _BULK):
            body = json_body({"ids": rows[first : first + _BULK]})
            request = ApiRequest("POST", "/v1/subscriptions/remove", body, extra_time=_BULK_TIME)
            results += yield from self._call(request, partial(_results, first))
        return results

    def unsubscribe(self, id: str) -> Flow[None]:
        return self._call(ApiRequest("DELETE", f"/v1/subscriptions/{quoted(id)}"), nothing, gone=404)

    def subscription(self, id: str) -> Flow[Subscription]:
        return self._call(ApiRequest("GET", f"/v1/subscriptions/{quoted(id)}"), subscription_from_json)

    def subscriptions(self) -> Flow[list[Subscription]]:
        subscriptions: list[Subscription] = []
        has_more = True
        while has_more:
            parameters = {"after": subscriptions[-1].id} if subscriptions else {}
            page, has_more = yield from self._call(
                ApiRequest("GET", "/v1/subscriptions", parameters=parameters),
                lambda reply: ([subscription_from_json(s) for s in reply["subscriptions"]], bool(reply["more"])),
            )
            subscriptions += page
        return subscriptions

    def explain_match(self, id: str, event: Mapping[str, Any]) -> Flow[dict[str, Any]]:
        request = ApiRequest("POST", f"/v1/subscriptions/{quoted(id)}/explain", json_body(dict(event)))
        return self._call(request, dict)

    def bindings(self, id: str, limit: int, skip: int) -> Flow[list[Binding]]:
        path = f"/v1/subscriptions/{quoted(id)}/bindings"
        request = ApiRequest("GET", path, parameters={"limit": limit, "skip": skip})
        return self._call(request, lambda reply: [binding_from_json(b) for b in reply["bindings"]])


def _query_fields(
    lacl: str | None, box: Sequence[float] | None, crosses_antimeridian: bool, terms: Iterable[str]
) -> dict[str, object]:
    if box is not None and len(box) != 4:
        raise InputError("a box is four numbers", where="box", hint="pass (min_x, min_y, max_x, max_y)")
    return without_none(
        lacl=lacl,
        box=None if box is None else list(box),
        crosses_antimeridian=crosses_antimeridian or None,
        terms=as_list(terms) or None,
    )


def _results(first: int, reply: Any) -> list[SubscriptionResult]:
    """Rows of the node's response. `first`: how many rows earlier requests had."""
    results = []
    for number, row in enumerate(reply["subscriptions"], first):
        error = row.get("error")
        if error is not None:
            error = error_from_json(error)
            _, bracket, field = (error.where or "").partition("]")
            error.where = f"subscriptions[{number}]{field}" if bracket else error.where
        results.append(SubscriptionResult(row.get("id"), error is None and row.get("new", True), error))
    return results
