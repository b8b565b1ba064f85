"""Demand: whether anything may use the events of a source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from roamcast.errors import CapacityError
from roamcast.node.auth import Caller
from roamcast.node.http.dependencies import Source, TheNode
from roamcast.node.http.responses import HEARTBEAT, HEARTBEAT_EVERY, STREAM, sse_message, sse_response
from roamcast.node.service import Node
from roamcast.node.waiting import wait_for

router = APIRouter(prefix="/me/demand", tags=["entities"])


@router.get("")
async def demand(node: TheNode, caller: Source) -> dict[str, Any]:
    """Whether the calling source is `demanded`: a binding or subscription may use its events."""
    return {"demanded": node.control.peer_sources.is_demanded(caller.id)}


@router.get("/stream", response_class=StreamingResponse, responses=STREAM)
async def stream(node: TheNode, caller: Source) -> StreamingResponse:
    """The demand as server-sent events named `demand`: at once, and after each change.

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
