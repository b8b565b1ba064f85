"""Events, sequence numbers and positions: what entities send."""

from __future__ import annotations

from fastapi import APIRouter, Request

from roamcast.errors import InputError, PermissionDeniedError
from roamcast.model import Position
from roamcast.node.clock import check_time
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import AnyCaller, Publisher, Source, TheNode
from roamcast.node.http.home_route import HomeRoute
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.schemas.events import MovedOut, NumbersOut, PublishedOut
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.schemas import EventIn, NumbersIn, PositionIn
from roamcast.node.waiting import await_to_the_end

router = APIRouter(tags=["events"], route_class=ApiRoute)
own = APIRouter(tags=["events"], route_class=HomeRoute)

_EVENTS = BodyParser(EventIn, bulk="events")
_POSITIONS = BodyParser(PositionIn, bulk="positions")
_NUMBERS = BodyParser(NumbersIn)


@router.post("/events", status_code=202, openapi_extra=_EVENTS.openapi, responses=errors(429))
async def publish_events(request: Request, node: TheNode, publisher: Publisher) -> PublishedOut:
    """Publish one event or a list, all or none.

    The response is sent when they are durable. Events with a `seq` can be sent again: duplicates are dropped.
    Events without `seq` get the next numbers; sending those again publishes them twice, so reserve numbers first if a
    response could be lost. Do not mix your own numbers with the node's for one source.

    A source of another domain sends a publish proof for this domain in place of its token. Its events need `seq`, `x`
    and `y`. Events with the same `seq` at several nodes are duplicates.
    """
    events, bulk = await _EVENTS.read_bulk(request, node)
    now = node.clock.now()
    if isinstance(publisher, RemoteSource):
        pass_on = node.links.pass_on if node.links.is_linked(publisher.home) else None
        accepted = await node.intake.accept_remote(publisher, events, bulk=bulk, now=now, pass_on=pass_on)
    else:
        accepted = await node.intake.accept(publisher.id, events, bulk=bulk, now=now)
    return PublishedOut(**accepted._asdict())


@router.post("/numbers", openapi_extra=_NUMBERS.openapi)
async def reserve_numbers(request: Request, node: TheNode, caller: Source) -> NumbersOut:
    """Reserve sequence numbers for the caller's next events, so that each can be sent again safely.

    Unused numbers are harmless.
    """
    count = (await _NUMBERS.read(request, node)).count
    numbers = await node.sequences.take(caller.id, [None] * count)
    return NumbersOut(first=numbers[0], count=len(numbers))


@own.post("/positions", openapi_extra=_POSITIONS.openapi)
async def report_positions(request: Request, node: TheNode, caller: AnyCaller) -> MovedOut:
    """Report the caller's position: one or a list, all or none. The latest time wins.

    `stale` is how many were older than the known position and ignored. `pending` names the peers that have not
    confirmed yet where the caller's moving regions are now. A time far ahead of the
    node's clock is refused, because it would make all later positions stale.
    """
    received, bulk = await _POSITIONS.read_bulk(request, node)
    now = node.clock.now()
    positions = []
    for row, position in enumerate(received):
        prefix = f"positions[{row}]." if bulk else ""
        if position.entity not in (None, caller.id):
            raise PermissionDeniedError(
                f"the token belongs to {caller.id}", where=f"{prefix}entity", hint="use the token of that entity"
            )
        try:
            node.space.check_point(position.x, position.y)
        except InputError as error:
            raise InputError(error.message, where=f"{prefix}{error.where}", hint=error.hint) from None
        time = now if position.time is None else position.time
        check_time(time, now, node.limits.ahead, f"{prefix}time")
        positions.append(Position(caller.id, position.x, position.y, time))
    stale = await await_to_the_end(node.control.move(positions))
    if (entity := node.entities.find(caller.id)) is not None:
        node.show_entity(entity)
    pending = node.control.peer_wants.own.waiting_for(caller.id)
    return MovedOut(accepted=len(positions), stale=stale, pending=pending)
