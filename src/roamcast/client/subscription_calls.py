"""The calls of the HTTP API about subscriptions, as flows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from roamcast.client.arrow_tables import ARROW_STREAM, ArrowTable, as_table, stream_body
from roamcast.client.bulk_calls import BULK, BULK_TIME, BulkCalls, row_results, rows_of
from roamcast.client.flow import ApiRequest, Flow, as_list, json_body, nothing, quoted, without_none
from roamcast.client.values import (
    Binding,
    Subscription,
    SubscriptionResult,
    binding_from_json,
    subscription_from_json,
)
from roamcast.errors import InputError, NotFoundError

__all__ = ["SubscriptionCalls"]

_ARROW = {"content-type": ARROW_STREAM}


class SubscriptionCalls(BulkCalls):
    """The part of `ApiCalls` about subscriptions."""

    def subscribe(
        self,
        lacl: str | None,
        box: Sequence[float] | None,
        crosses_antimeridian: bool,
        terms: Iterable[str],
        id: str | None,
        since: float | None,
    ) -> Flow[str]:
        # The id is chosen here, so that a retry after a lost response is the same subscription.
        fields = {"id": id or uuid.uuid4().hex, **_query_fields(lacl, box, crosses_antimeridian, terms)}
        fields |= without_none(since=since)
        return self._call(ApiRequest("POST", "/v1/subscriptions", json_body(fields)), lambda reply: str(reply["id"]))

    def subscribe_many(
        self, subscriptions: Iterable[Mapping[str, Any]] | ArrowTable, all_or_none: bool, key: str | None
    ) -> Flow[list[SubscriptionResult]]:
        table = as_table(subscriptions)
        rows: Any = rows_of("subscriptions", subscriptions) if table is None else table
        results: list[SubscriptionResult] = []
        key = key or uuid.uuid4().hex  # so that a retry after a lost response adds nothing twice
        size = max(1, len(rows)) if all_or_none else BULK
        for first in range(0, len(rows), size):
            parameters = {"idempotency_key": f"{key}:{first}", "all_or_none": str(all_or_none).lower()}
            part = rows[first : first + size]
            body, headers = (json_body(part), {}) if table is None else (stream_body(part), _ARROW)
            request = ApiRequest("POST", "/v1/subscriptions", body, parameters, headers, extra_time=BULK_TIME)
            results += yield from self._call(request, partial(row_results, "subscriptions", SubscriptionResult, first))
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
        rows = as_list(ids)
        results: list[SubscriptionResult] = []
        for first in range(0, len(rows), BULK):
            body = json_body({"ids": rows[first : first + BULK]})
            request = ApiRequest("POST", "/v1/subscriptions/remove", body, extra_time=BULK_TIME)
            read = partial(row_results, "subscriptions", SubscriptionResult, first)
            results += yield from self._call(request, read, read_again=partial(_removed, first))
        return results

    def unsubscribe(self, id: str) -> Flow[None]:
        return self._call(ApiRequest("DELETE", f"/v1/subscriptions/{quoted(id)}"), nothing, gone=404)

    def subscription(self, id: str) -> Flow[Subscription]:
        return self._call(ApiRequest("GET", f"/v1/subscriptions/{quoted(id)}"), subscription_from_json)

    def subscriptions(self) -> Flow[list[Subscription]]:
        return self._pages("/v1/subscriptions", "subscriptions", subscription_from_json, lambda one: one.id)

    def explain_match(self, id: str, event: Mapping[str, Any]) -> Flow[dict[str, Any]]:
        request = ApiRequest("POST", f"/v1/subscriptions/{quoted(id)}/explain", json_body(dict(event)))
        return self._call(request, dict)

    def bindings(self, id: str, limit: int, skip: int) -> Flow[list[Binding]]:
        path = f"/v1/subscriptions/{quoted(id)}/bindings"
        request = ApiRequest("GET", path, parameters={"limit": limit, "skip": skip})
        return self._call(request, lambda reply: [binding_from_json(b) for b in reply["bindings"]])


def _removed(first: int, reply: Any) -> list[SubscriptionResult]:
    """As `row_results`, after an earlier attempt, which may have removed those that do not exist."""
    results = row_results("subscriptions", SubscriptionResult, first, reply)
    return [replace(one, changed=True, error=None) if isinstance(one.error, NotFoundError) else one for one in results]


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
