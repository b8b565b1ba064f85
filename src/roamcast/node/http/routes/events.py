"""Events and positions come in."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from roamcast.errors import InputError, PermissionDeniedError
from roamcast.model import Position
from roamcast.node.clock import check_time
from roamcast.node.http.dependencies import AnyCaller, Publisher, Source, TheNode
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.schemas import EventIn, NumbersIn, PositionIn
from roamcast.node.waiting import await_to_the_end

router = APIRouter(tags=["events"])

_EVENTS = BodyParser(EventIn, bulk="events")
_POSITIONS = BodyParser(PositionIn, bulk="positions")
_NUMBERS = BodyParser(NumbersIn)


@router.post("/events", status_code=202, openapi_extra=_EVENTS.openapi)
async def post_events(request: Request, node: TheNode, publisher: Publisher) -> dict[str, Any]:
    """Publish one event or a list of them, all or none.

    The answer comes when they are safe on disk. Sending events again with the same `seq` is harmless: copies are
    dropped later. Events without `seq` get the next numbers, and sending those again doubles them: take numbers first
    where an answer could be lost. Do not mix numbers of your own with the node's for one source.

    A source of another domain brings, in place of a token, a passport made from it for this domain. Its events need
    `seq`, `x` and `y`; those that come at several nodes with the same `seq` are copies.
    """
    events, bulk = await _EVENTS.read_bulk(request, node)
    now = node.clock.now()
    if isinstance(publisher, RemoteSource):
        taken = await node.intake.take_from(publisher, events, bulk=bulk, now=now)
    else:
        taken = await node.intake.take(publisher.id, events, bulk=bulk, now=now)
    return taken._asdict()


@router.post("/numbers", openapi_extra=_NUMBERS.openapi)
async def take_numbers(request: Request, node: TheNode, caller: Source) -> dict[str, int]:
    """Set numbers aside for the caller's next events: nobody else gets them, so that each can be sent again at will.

    Numbers that are never used do no harm.
    """
    given = await _NUMBERS.read(request, node)
    numbers = await node.sequences.take(caller.id, [None] * given.count)
    return {"first": numbers[0], "count": len(numbers)}


@router.post("/positions", openapi_extra=_POSITIONS.openapi)
async def post_positions(request: Request, node: TheNode, caller: AnyCaller) -> dict[str, Any]:
    """Tell where the caller is: one position or a list of them, all or none. The one with the latest time counts.

    `stale` is how many of them were older than what was known, and changed nothing. A time far ahead of the node's is
    refused: nothing that is told later would count.
    """
    given, bulk = await _POSITIONS.read_bulk(request, node)
    now = node.clock.now()
    positions = []
    for row, position in enumerate(given):
        place = f"positions[{row}]." if bulk else ""
        if position.entity not in (None, caller.id):
            raise PermissionDeniedError(
                f"this token is of {caller.id}", where=f"{place}entity", hint="use the token of that entity"
            )
        try:
            node.space.check_point(position.x, position.y)
        except InputError as error:
            raise InputError(error.message, where=f"{place}{error.where}", hint=error.hint) from None
        time = now if position.time is None else position.time
        check_time(time, now, node.limits.ahead, f"{place}time")
        positions.append(Position(caller.id, position.x, position.y, time))
    stale = await await_to_the_end(node.control.move(positions))
    if (entity := node.entities.find(caller.id)) is not None:
        node.show_entity(entity)
    return {"accepted": len(positions), "stale": stale}
