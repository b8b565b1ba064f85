"""Demand: whether anything may use the events of a source, or of each source of a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from roamcast.errors import CapacityError
from roamcast.node.callers import Caller, is_current
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import DemandReader, SourceOrGateway, TheNode, TokenHash
from roamcast.node.http.openapi import errors
from roamcast.node.http.responses import HEARTBEAT, HEARTBEAT_EVERY, STREAM, sse_message, sse_response
from roamcast.node.http.schemas.entities import DemandOut
from roamcast.node.http.schemas.mailboxes import TicketOut
from roamcast.node.service import Node
from roamcast.node.waiting import wait_for

router = APIRouter(prefix="/me/demand", tags=["entities"], route_class=ApiRoute)

_GATEWAY_PAUSE: Final = 0.1  # seconds between messages to a gateway: each takes a look at all of its sources


@router.get("", response_model_exclude_none=True)
async def show_demand(node: TheNode, caller: SourceOrGateway) -> DemandOut:
    """Tell whether the calling source is `demanded`: a binding or subscription may use its events.

    A gateway gets this for each of its `sources`; `demanded` tells whether any of them is.
    """
    demand = _demand_of(node, caller)
    return _response(caller, demand, demand)


@router.post("/tickets", status_code=201, responses=errors(429))
async def create_demand_ticket(node: TheNode, caller: SourceOrGateway, token_hash: TokenHash) -> TicketOut:
    """Create a ticket with which a browser can open the caller's demand stream: `/v1/me/demand/stream?ticket=…`."""
    return TicketOut(ticket=node.tickets.issue("demand", token_hash), seconds=node.tickets.seconds)


@router.get("/stream", response_class=StreamingResponse, responses=STREAM | errors(429))
async def stream_demand(node: TheNode, caller: DemandReader) -> StreamingResponse:
    """Stream the demand as server-sent events named `demand`: at once, and after each change.

    The first event for a gateway has all its `sources`, the others have those that changed or are new. A comment is
    sent every 15 seconds. A source that is not connected should publish. 429 if too many streams are open.
    """
    if node.discovery.waiters.count(caller.id) >= node.limits.streams:
        raise CapacityError(
            f"{node.limits.streams} streams of this {caller.kind} are already open",
            where=caller.id,
            hint="close one of them",
        )
    return sse_response(_stream(node, caller))


async def _stream(node: Node, caller: Caller) -> AsyncIterator[bytes]:
    waiters, pause = node.discovery.waiters, _GATEWAY_PAUSE if caller.kind == "gateway" else 0.0
    sent: Mapping[str, bool] | None = None
    with waiters.waiting(caller.id) as event:
        while not waiters.stopped and is_current(caller, node.entities.find):
            event.clear()
            demand = _demand_of(node, caller)
            changed = demand if sent is None else dict(demand.items() - sent.items())
            if changed or sent is None:
                yield sse_message("demand", _response(caller, demand, changed).model_dump_json(exclude_none=True))
            sent = demand
            if changed:
                await asyncio.sleep(pause)
            elif not await wait_for(event, HEARTBEAT_EVERY):
                yield HEARTBEAT


def _demand_of(node: Node, caller: Caller) -> dict[str, bool]:
    """Whether each source that the caller is, or has, is demanded."""
    sources = node.entities.sources_of(caller.id) if caller.kind == "gateway" else [caller.id]
    return {source: node.control.peer_sources.is_demanded(source) for source in sources}


def _response(caller: Caller, demand: Mapping[str, bool], shown: Mapping[str, bool]) -> DemandOut:
    sources = dict(sorted(shown.items())) if caller.kind == "gateway" else None
    return DemandOut(demanded=any(demand.values()), sources=sources)
