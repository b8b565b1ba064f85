"""Mailboxes: pull, acknowledge and stream the caller's own, or pull many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from roamcast.deliver.requests import MailboxPull, Pulled
from roamcast.errors import CapacityError, ElsewhereError, InputError, RoamcastError
from roamcast.node.auth import MailboxReader
from roamcast.node.callers import unknown_token
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import HasToken, LetterReader, Reader, TheNode
from roamcast.node.http.errors import error_json
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.responses import (
    HEARTBEAT,
    HEARTBEAT_EVERY,
    STREAM,
    letter_json,
    pulled_json,
    sse_message,
    sse_response,
)
from roamcast.node.http.schemas.mailboxes import AcknowledgedOut, MailboxesOut, PulledOut, TicketOut
from roamcast.node.schemas import AckIn, PullIn
from roamcast.node.service import Node
from roamcast.node.waiting import wait_for

router = APIRouter(tags=["mailbox"], route_class=ApiRoute)

_ACK = BodyParser(AckIn)
_PULL = BodyParser(PullIn, bulk="mailboxes")
_STREAM_LETTERS = 100  # that are read at a time
_HIGHEST = 2**63 - 1

After = Annotated[int, Query(ge=0, le=_HIGHEST, description="Only letters after this offset.")]
Wait = Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for a first letter.")]


@router.get("/mailbox", response_class=Response, responses={200: {"model": PulledOut}, **errors(429)})
async def pull_letters(
    node: TheNode,
    reader: Reader,
    limit: Annotated[int, Query(ge=1, description="Maximum number of letters.")] = 100,
    after: After = 0,
    wait: Wait = 0,
) -> Response:
    """Pull the next letters, in order. Letters stay until they are acknowledged.

    A response may have fewer letters than `limit` although more are waiting: the node limits letters and bytes. It is
    empty only if there is no letter after `after`.
    """
    _check_wait(node, wait)
    limit = min(limit, node.limits.pull)
    pulled = await node.office.mailboxes.pull_waiting(reader.name, limit, after, wait)
    if wait and not node.auth.is_valid(reader):
        raise unknown_token()
    return Response(pulled_json(pulled), media_type="application/json")


@router.post("/mailbox/ack", openapi_extra=_ACK.openapi)
async def acknowledge_letters(request: Request, node: TheNode, reader: Reader) -> AcknowledgedOut:
    """Delete the letters up to and including offset `through`; 0 is before the first. Idempotent."""
    through = (await _ACK.read(request, node)).through
    count = await node.office.mailboxes.acknowledge(reader.name, through) if through else 0
    node.metrics.letters_delivered.inc(count)
    return AcknowledgedOut(acknowledged=count)


@router.post("/mailbox/tickets", status_code=201, responses=errors(429))
async def create_mailbox_ticket(node: TheNode, reader: Reader) -> TicketOut:
    """Create a ticket with which a browser can open the caller's letter stream: `/v1/mailbox/stream?ticket=…`.

    A browser's `EventSource` cannot send the token. The ticket opens the stream, and nothing else, for a minute. A
    stream that is open stays open.
    """
    return TicketOut(ticket=node.tickets.issue("mailbox", reader.token_hash), seconds=node.tickets.seconds)


@router.get("/mailbox/stream", response_class=StreamingResponse, responses=STREAM | errors(429))
async def stream_letters(
    node: TheNode,
    reader: LetterReader,
    after: After = 0,
    batch: Annotated[int | None, Query(ge=1, description="Maximum number of letters in an event.")] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Stream the letters of the mailbox as server-sent events, until the connection ends.

    Each event is named `letter`, with the letter's offset as `id` and the letter, as in a pull, as `data`. With
    `batch`, each event is named `letters`: its `data` is a list of the letters that are there, its `id` the offset of
    the last. The last event is named `moved` if the mailbox migrates, with its `office`, if known, and `epoch`. The
    stream begins after `Last-Event-ID`, else after `after`. It acknowledges nothing. A comment is sent every 15
    seconds. 429 if too many streams of this mailbox are open.
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
    return sse_response(_stream(node, reader, after, batch))


@router.post(
    "/mailboxes/pull",
    response_class=Response,
    responses={200: {"model": MailboxesOut}, **errors(401)},
    openapi_extra=_PULL.openapi,
)
async def pull_mailboxes(request: Request, node: TheNode, has_token: HasToken, wait: Wait = 0) -> Response:
    """Acknowledge and pull many mailboxes at once, for hosts of many subscribers.

    Each mailbox is named once, by its token. `mailboxes` in the response has, in the same order, the `letters` of each
    and how many are `waiting`, or an `error`; then nothing was acknowledged in that mailbox. A response is limited in
    bytes: a mailbox may have no letters in it although some are waiting. With `wait`, a response without letters and
    errors is delayed until there is a letter.

    Without a token in the header, the list must be short: 256 KiB, unless the node has another limit.
    """
    _check_wait(node, wait)
    pulls, _ = await _PULL.read_bulk(request, node, node.limits.mailboxes, anonymous=not has_token)
    wanted = [_mailbox_pull(node, pull) for pull in pulls]
    named = [each for each in wanted if isinstance(each, MailboxPull)]
    pulled = await node.office.mailboxes.pull_many(named, wait if len(named) == len(wanted) else 0)
    node.metrics.letters_delivered.inc(pulled.acknowledged)
    outcomes = iter(pulled.outcomes)
    parts = [_outcome_json(next(outcomes) if isinstance(each, MailboxPull) else each) for each in wanted]
    return Response(f'{{"mailboxes":[{",".join(parts)}]}}', media_type="application/json")


def _mailbox_pull(node: Node, pull: PullIn) -> MailboxPull | RoamcastError:
    try:
        return MailboxPull(node.auth.reader(pull.token).name, pull.through, min(pull.limit, node.limits.pull))
    except RoamcastError as error:
        return error


def _outcome_json(outcome: Pulled | RoamcastError) -> str:
    if isinstance(outcome, Pulled):
        return pulled_json(outcome)
    return orjson.dumps({"error": error_json(outcome)}).decode()


def _check_wait(node: Node, wait: float) -> None:
    if wait > node.limits.wait:
        raise InputError(f"must be at most {node.limits.wait:g} seconds", where="wait", hint="wait less and repeat")


def _is_full(node: Node, receiver: str) -> bool:
    return node.waiters.count(receiver) >= node.limits.streams


async def _stream(node: Node, reader: MailboxReader, after: int, batch: int | None) -> AsyncIterator[bytes]:
    if _is_full(node, reader.name):
        return  # others came first; the next request gets the error
    limit = min(batch or _STREAM_LETTERS, node.limits.pull)
    with node.waiters.waiting(reader.name) as event:
        yield HEARTBEAT
        while not node.waiters.stopped and node.auth.is_valid(reader):
            event.clear()
            try:
                letters = (await node.office.mailboxes.pull(reader.name, limit, after)).letters
            except ElsewhereError as moved:
                yield sse_message("moved", orjson.dumps({"office": moved.office, "epoch": moved.epoch}).decode())
                return
            if letters:
                after = letters[-1].offset or after
                if batch is None:
                    yield b"".join(sse_message("letter", letter_json(filed), filed.offset) for filed in letters)
                else:
                    yield sse_message("letters", f"[{','.join(map(letter_json, letters))}]", after)
            elif not node.waiters.stopped and not await wait_for(event, HEARTBEAT_EVERY):
                yield HEARTBEAT
