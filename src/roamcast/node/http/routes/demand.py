"""Demand: whether anything may use the events of a source."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from roamcast.errors import CapacityError
from roamcast.node.auth import Caller
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import DemandReader, Source, TheNode, TokenHash
from roamcast.node.http.openapi import errors
from roamcast.node.http.responses import HEARTBEAT, HEARTBEAT_EVERY, STREAM, sse_message, sse_response
from roamcast.node.http.schemas.entities import DemandOut
from roamcast.node.http.schemas.mailboxes import TicketOut
from roamcast.node.service import Node
from roamcast.node.waiting import wait_for

router = APIRouter(prefix="/me/demand", tags=["entities"], route_class=ApiRoute)


@router.get("")
async def show_demand(node: TheNode, caller: Source) -> DemandOut:
    """Tell whether the calling source is `demanded`: a binding or subscription may use its events."""
    return DemandOut(demanded=node.control.peer_sources.is_demanded(caller.id))


@router.post("/tickets", status_code=201, responses=errors(429))
async def create_demand_ticket(node: TheNode, caller: Source, token_hash: TokenHash) -> TicketOut:
    """Create a ticket with which a browser can open the caller's demand stream: `/v1/me/demand/stream?ticket=…`."""
    return TicketOut(ticket=node.tickets.issue("demand", token_hash), seconds=node.tickets.seconds)


@router.get("/stream", response_class=StreamingResponse, responses=STREAM | errors(429))
async def stream_demand(node: TheNode, caller: DemandReader) -> StreamingResponse:
    """Stream the demand as server-sent events named `demand`: at once, and after each change.

    A comment is sent every 15 seconds. A source that is not connected should publish. 429 if too many streams are open.
    """
    if node.discovery.waiters.count(caller.id) >= node.limits.streams:
        raise CapacityError(
            f"{node.limits.streams} streams of this source are already open", where=caller.id, hint="close one of them"
        )
    return sse_response(_stream(node, caller))


async def _stream(node: Node, caller: Caller) -> AsyncIterator[bytes]:
    waiters, sent = node.discovery.waiters, None
    with waiters.waiting(caller.id) as event:
        while not waiters.stopped and node.entities.find(caller.id) is not None:
            event.clear()
            demanded = node.control.peer_sources.is_demanded(caller.id)
            if demanded != sent:
                sent = demanded
                yield sse_message("demand", orjson.dumps({"demanded": demanded}).decode())
            elif not await wait_for(event, HEARTBEAT_EVERY):
                yield HEARTBEAT
