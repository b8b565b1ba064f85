"""The calls of the HTTP API about the sources of a gateway, as flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from roamcast.client.bulk_calls import BULK, BULK_TIME, BulkCalls, row_results, rows_of
from roamcast.client.flow import ApiRequest, Flow, json_body, nothing, quoted
from roamcast.client.values import SourceResult

__all__ = ["SourceCalls"]


class SourceCalls(BulkCalls):
    """The part of `ApiCalls` about the sources of a gateway."""

    def register_sources(self, sources: Iterable[Mapping[str, Any]], all_or_none: bool) -> Flow[list[SourceResult]]:
        rows = rows_of("sources", sources)
        results: list[SourceResult] = []
        size = max(1, len(rows)) if all_or_none else BULK
        for first in range(0, len(rows), size):
            parameters = {"all_or_none": str(all_or_none).lower()}
            body = json_body(rows[first : first + size])
            request = ApiRequest("POST", "/v1/sources", body, parameters, extra_time=BULK_TIME)
            results += yield from self._call(request, partial(row_results, "sources", SourceResult, first))
        return results

    def sources(self) -> Flow[list[dict[str, Any]]]:
        return self._pages("/v1/sources", "sources", dict, lambda source: str(source["id"]))

    def remove_source(self, id: str) -> Flow[None]:
        return self._call(ApiRequest("DELETE", f"/v1/sources/{quoted(id)}"), nothing, gone=404)

    def move_many(self, positions: Iterable[Mapping[str, Any]]) -> Flow[int]:
        rows = rows_of("positions", positions)
        stale = 0
        for first in range(0, len(rows), BULK):
            request = ApiRequest("POST", "/v1/positions", json_body(rows[first : first + BULK]), extra_time=BULK_TIME)
            stale += yield from self._call(request, lambda reply: int(reply["stale"]))
        return stale
