"""Mailboxes: pull, acknowledge and stream the caller's own, or pull many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from roamcast.errors import CapacityError, ElsewhereError, InputError, RoamcastError
from roamcast.node.auth import MailboxReader
from roamcast.node.http.dependencies import Reader, TheNode
from roamcast.node.http.errors import error_json
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.responses import (
    HEARTBEAT,
    HEARTBEAT_EVERY,
    JSON,
    STREAM,
    letter_json,
    pulled_json,
    sse_message,
    sse_response,
)
from roamcast.node.schemas import AckIn, PullIn
from roamcast.node.service import Node
from roamcast.node.waiting import wait_for

router = APIRouter(tags=["mailbox"])

_ACK = BodyParser(AckIn)
_PULL = BodyParser(PullIn, bulk="mailboxes", anonymous=True)
_STREAM_LETTERS = 100  # in a message
_HIGHEST = 2**63 - 1

After = Annotated[int, Query(ge=0, le=_HIGHEST, description="Only letters after this offset.")]


@router.get("/mailbox", response_class=Response, responses=JSON)
async def pull(
    node: TheNode,
    reader: Reader,
    limit: Annotated[int, Query(ge=1, description="Maximum number of letters.")] = 100,
    after: After = 0,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for a first letter.")] = 0,
) -> Response:
    """The next letters in order, and the number of letters waiting. Letters stay until they are acknowledged.

    A response may have fewer letters than `limit` although more are waiting: the node limits letters and bytes. It is
    empty only if there is no letter after `after`.
    """
    if wait > node.limits.wait:
        raise InputError(f"must be at most {node.limits.wait:g} seconds", where="wait", hint="wait less and repeat")
    limit = min(limit, node.limits.pull)
    pulled = await node.office.mailboxes.pull_waiting(reader.name, limit, after, wait)
    return Response(pulled_json(pulled), media_type="application/json")


@router.post("/mailbox/ack", openapi_extra=_ACK.openapi)
async def acknowledge(request: Request, node: TheNode, reader: Reader) -> dict[str, Any]:
    """Delete the letters up to and including offset `through`; 0 is before the first. Idempotent."""
    through = (await _ACK.read(request, node)).through
    count = await node.office.mailboxes.acknowledge(reader.name, through) if through else 0
    node.metrics.letters_delivered.inc(count)
    return {"acknowledged": count}


@router.get("/mailbox/stream", response_class=StreamingResponse, responses=STREAM)
async def stream(
    node: TheNode, reader: Reader, after: After = 0, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """The mailbox as server-sent events, until the connection ends.

    Each event is named `letter`, with the letter's offset as `id` and the letter as `data`. The stream begins after
    `Last-Event-ID`, else after `after`. It acknowledges nothing. A comment is sent every 15 seconds. 429 if too many
    streams of this mailbox are open.
    """
    if _is_full(node, reader.name):
        raise CapacityError(
            f"{node.limits.streams} streams or polls of this mailbox are already open",
            where=reader.name,
            hint="close one of them",
        )
    if last_event_id:
        if not last_event_id.isdecimal() or len(last_event_id) > len(str(_HIGHEST)):
            raise InputError("not an offset", where="Last-Event-ID", hint="send the last id received")
        after = min(int(last_event_id), _HIGHEST)
    await node.office.mailboxes.pull(reader.name, 1, after)  # raises ElsewhereError before the stream begins
    return sse_response(_stream(node, reader, after))


@router.post("/mailboxes/pull", response_class=Response, responses=JSON, openapi_extra=_PULL.openapi)
async def pull_many(request: Request, node: TheNode) -> Response:
    """Acknowledge and pull many mailboxes at once, for hosts of many subscribers.

    Each mailbox is named once, by its token. `mailboxes` in the response has, in the same order, what pulling each
    alone would return, or an `error`; then nothing was acknowledged in that mailbox.
    """
    pulls, _ = await _PULL.read_bulk(request, node, node.limits.mailboxes)
    max_bytes = node.limits.pull_bytes // len(pulls)
    parts = await asyncio.gather(*(_pull_one(node, each, max_bytes) for each in pulls))
    return Response(f'{{"mailboxes":[{",".join(parts)}]}}', media_type="application/json")


async def _pull_one(node: Node, pull: PullIn, max_bytes: int) -> str:
    try:
        name = node.auth.reader(pull.token).name
        limit = min(pull.limit, node.limits.pull)
        count, pulled = await node.office.mailboxes.acknowledge_and_pull(name, pull.ack, limit, max_bytes)
    except RoamcastError as error:
        return orjson.dumps({"error": error_json(error)}).decode()
    node.metrics.letters_delivered.inc(count)
    return pulled_json(pulled)


def _is_full(node: Node, receiver: str) -> bool:
    return node.waiters.count(receiver) >= node.limits.streams


async def _stream(node: Node, reader: MailboxReader, after: int) -> AsyncIterator[bytes]:
    if _is_full(node, reader.name):
        return  # others came first; the next request gets the error
    with node.waiters.waiting(reader.name) as event:
        yield HEARTBEAT
        while not node.waiters.stopped and node.auth.is_valid(reader):
            event.clear()
            try:
                letters = (await node.office.mailboxes.pull(reader.name, _STREAM_LETTERS, after)).letters
            except ElsewhereError as moved:
                yield sse_message("moved", orjson.dumps({"office": moved.office, "epoch": moved.epoch}).decode())
                return
            if letters:
                after = letters[-1].offset or after
                yield b"".join(sse_message("letter", letter_json(filed), filed.offset) for filed in letters)
            elif not node.waiters.stopped and not await wait_for(event, HEARTBEAT_EVERY):
                yield HEARTBEAT
