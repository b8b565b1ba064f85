"""The caller's own mailbox: pull, acknowledge, stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from roamcast.errors import CapacityError, ElsewhereError, InputError
from roamcast.node.auth import Reader as MailboxReader
from roamcast.node.http.dependencies import Reader, TheNode
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.responses import HEARTBEAT, HEARTBEAT_EVERY, STREAM, letter_json, pulled_json, sse_message
from roamcast.node.schemas import AckIn
from roamcast.node.service import Node
from roamcast.node.waiting import wait_for

router = APIRouter(prefix="/mailbox", tags=["mailbox"])

_ACK = BodyParser(AckIn)
_JSON: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}}}}
_PORTION = 100
_HIGHEST = 2**63 - 1

After = Annotated[int, Query(ge=0, le=_HIGHEST, description="Only letters behind this place.")]


@router.get("", response_class=Response, responses=_JSON)
async def pull(
    node: TheNode,
    reader: Reader,
    limit: Annotated[int, Query(ge=1, description="At most so many letters.")] = 100,
    after: After = 0,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the first.")] = 0,
) -> Response:
    """The next letters in order, and how many are waiting in all. They stay until they are acknowledged.

    An answer may hold fewer letters than `limit` though more are waiting: the node has limits of its own, in letters
    and in bytes. It is empty only if no letter is behind `after`.
    """
    if wait > node.limits.wait:
        raise InputError(f"over {node.limits.wait:g} seconds", where="wait", hint="wait less, and ask again")
    limit = min(limit, node.limits.pull)
    pulled = await node.post.mailboxes.pull_waiting(reader.name, limit, after, wait)
    return Response(pulled_json(pulled), media_type="application/json")


@router.post("/ack", openapi_extra=_ACK.openapi)
async def acknowledge(request: Request, node: TheNode, reader: Reader) -> dict[str, Any]:
    """Delete the letters up to and with place `through`; 0 is before the first. Again is harmless."""
    through = (await _ACK.read(request, node)).through
    count = await node.post.mailboxes.acknowledge(reader.name, through) if through else 0
    node.metrics.letters_delivered.inc(count)
    return {"acknowledged": count}


@router.get("/stream", response_class=StreamingResponse, responses=STREAM)
async def stream(
    node: TheNode,
    reader: Reader,
    after: After = 0,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """The mailbox as server-sent events, for as long as the connection lasts.

    Each has the letter's place as `id`, `letter` as `event`, and the letter as `data`. It begins behind
    `Last-Event-ID`, else behind `after`; acknowledges nothing; sends a comment every 15 seconds. 429 if too many
    streams of this mailbox are open.
    """
    if _is_full(node, reader.name):
        raise CapacityError(
            f"{node.limits.streams} streams or polls of this mailbox are open already",
            where=reader.name,
            hint="end one of them, or read the mailbox from one place",
        )
    if last_event_id:
        if not last_event_id.isdecimal() or len(last_event_id) > len(str(_HIGHEST)):
            raise InputError("not a place", where="Last-Event-ID", hint="send the last id you got")
        after = min(int(last_event_id), _HIGHEST)
    await node.post.mailboxes.pull(reader.name, 1, after)  # or say at once that the mailbox is elsewhere
    return StreamingResponse(
        _stream(node, reader, after), headers={"cache-control": "no-store"}, media_type="text/event-stream"
    )


def _is_full(node: Node, receiver: str) -> bool:
    return node.waiters.count(receiver) >= node.limits.streams


async def _stream(node: Node, reader: MailboxReader, after: int) -> AsyncIterator[bytes]:
    if _is_full(node, reader.name):
        return  # others were let in at the same moment; who asks again is told
    with node.waiters.waiting(reader.name) as event:
        yield HEARTBEAT
        while not node.waiters.stopped and node.auth.still_reads(reader):
            event.clear()
            try:
                letters = (await node.post.mailboxes.pull(reader.name, _PORTION, after)).letters
            except ElsewhereError as moved:
                yield sse_message("moved", orjson.dumps({"office": moved.office, "epoch": moved.epoch}).decode())
                return
            if letters:
                after = letters[-1].offset or after
                yield b"".join(sse_message("letter", letter_json(filed), filed.offset) for filed in letters)
            elif not node.waiters.stopped and not await wait_for(event, HEARTBEAT_EVERY):
                yield HEARTBEAT
