"""What a source hears: whether anybody wants it to send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from roamcast.errors import CapacityError
from roamcast.node.auth import Caller
from roamcast.node.http.dependencies import Source, TheNode
from roamcast.node.http.responses import HEARTBEAT, HEARTBEAT_EVERY, STREAM, sse_message
from roamcast.node.service import Node
from roamcast.node.waiting import wait_for

router = APIRouter(prefix="/me/demand", tags=["entities"])


@router.get("")
async def demand(node: TheNode, caller: Source) -> dict[str, Any]:
    """Whether the source whose token this is is `demanded` to send now."""
    return {"demanded": node.control.peer_sources.is_demanded(caller.id)}


@router.get("/stream", response_class=StreamingResponse, responses=STREAM)
async def stream(node: TheNode, caller: Source) -> StreamingResponse:
    """The same as server-sent events named `demand`: at once, and each time that it changes.

    A comment comes every 15 seconds. A source that does not hear the stream is to send. 429 if too many are open.
    """
    if node.discovery.waiters.count(caller.id) >= node.limits.streams:
        raise CapacityError(
            f"{node.limits.streams} streams of this source are open already",
            where=caller.id,
            hint="end one of them, or listen from one place",
        )
    headers = {"cache-control": "no-store"}
    return StreamingResponse(_stream(node, caller), headers=headers, media_type="text/event-stream")


async def _stream(node: Node, caller: Caller) -> AsyncIterator[bytes]:
    waiters, told = node.discovery.waiters, None
    with waiters.waiting(caller.id) as event:
        while not waiters.stopped and node.entities.find(caller.id) is not None:
            event.clear()
            wanted = node.control.peer_sources.is_demanded(caller.id)
            if wanted != told:
                told = wanted
                yield sse_message("demand", orjson.dumps({"demanded": wanted}).decode())
            elif not await wait_for(event, HEARTBEAT_EVERY):
                yield HEARTBEAT
