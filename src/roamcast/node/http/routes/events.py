"""Events, sequence numbers and positions: what entities send."""

from __future__ import annotations

from fastapi import APIRouter, Request

from roamcast.errors import InputError, PermissionDeniedError
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.bulk_bodies import EVENTS, POSITIONS
from roamcast.node.http.dependencies import AnyCaller, Publisher, SourceOrGateway, TheNode
from roamcast.node.http.home_route import HomeRoute
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.schemas.events import (
    MovedOut,
    NumbersBySourceOut,
    NumbersOut,
    PublishedOut,
    SourceNumbersOut,
)
from roamcast.node.intake import IntakeResult, positions_of
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.publish_rights import PublishRights
from roamcast.node.schemas import NumbersIn
from roamcast.node.waiting import await_to_the_end

router = APIRouter(tags=["events"], route_class=ApiRoute)
own = APIRouter(tags=["events"], route_class=HomeRoute)

_NUMBERS = BodyParser(NumbersIn)


@router.post(
    "/events",
    status_code=202,
    response_model_exclude_defaults=True,
    openapi_extra=EVENTS.openapi,
    responses=errors(429),
)
async def publish_events(request: Request, node: TheNode, publisher: Publisher) -> PublishedOut:
    """Publish one event, a list, or many as NDJSON, Arrow or Parquet; all or none.

    The response is sent when they are durable. Events with a `seq` can be sent again: duplicates are dropped.
    Events without `seq` get the next numbers; sending those again publishes them twice, so reserve numbers first if a
    response could be lost. Do not mix your own numbers with the node's for one source.

    A gateway publishes for its sources: each event names one (`source`), and the response has the numbers of each.

    A source of another domain sends a publish proof for this domain in place of its token. Its events need `seq`, `x`
    and `y`. Events with the same `seq` at several nodes are duplicates.
    """
    events, bulk = await EVENTS.read(request, node)
    now = node.clock.now()
    if isinstance(publisher, RemoteSource):
        pass_on = node.links.pass_on if node.links.is_linked(publisher.home) else None
        accepted = await node.intake.accept_remote(publisher, events, bulk=bulk, now=now, pass_on=pass_on)
    else:
        rights = PublishRights.of_caller(publisher, node.entities.find)
        accepted = await node.intake.accept(rights, events, bulk=bulk, now=now)
    return _published(accepted)


def _published(result: IntakeResult) -> PublishedOut:
    sources = [SourceNumbersOut(**each._asdict()) for each in result.sources] if len(result.sources) > 1 else []
    return PublishedOut(accepted=result.accepted, first_seq=result.first_seq, last_seq=result.last_seq, sources=sources)


@router.post("/numbers", openapi_extra=_NUMBERS.openapi)
async def reserve_numbers(request: Request, node: TheNode, caller: SourceOrGateway) -> NumbersOut | NumbersBySourceOut:
    """Reserve sequence numbers for the next events of the caller, so that each can be sent again safely.

    A gateway says how many for which of its `sources`, and gets the numbers by source. Unused numbers are harmless.
    """
    body = await _NUMBERS.read(request, node)
    rights = PublishRights.of_caller(caller, node.entities.find)
    if body.sources is not None:
        for source in body.sources:
            try:
                rights.check(source)
            except PermissionDeniedError as error:
                raise PermissionDeniedError(error.message, where=f"sources.{source}", hint=error.hint) from None
        firsts = await node.sequences.reserve(body.sources)
        numbers = {source: NumbersOut(first=first, count=body.sources[source]) for source, first in firsts.items()}
        return NumbersBySourceOut(sources=numbers)
    if rights.default is None or body.count is None:
        raise InputError(
            "a gateway has no numbers of its own",
            where="count",
            hint='name the source of each event; POST /v1/numbers takes "sources": {"id": count}',
        )
    firsts = await node.sequences.reserve({rights.default: body.count})
    return NumbersOut(first=firsts[rights.default], count=body.count)


@own.post("/positions", openapi_extra=POSITIONS.openapi)
async def report_positions(request: Request, node: TheNode, caller: AnyCaller) -> MovedOut:
    """Report the caller's position: one, a list, or many as NDJSON, Arrow or Parquet; all or none.

    The latest time wins. A gateway reports those of its sources: each position names one (`entity`). `stale` is how
    many were older than the known position and ignored. `pending` names the peers that have not confirmed yet where the
    caller's moving regions are now. A time far ahead of the node's clock is refused, because it would make all later
    positions stale.
    """
    received, bulk = await POSITIONS.read(request, node)
    rights, now = PublishRights.of_caller(caller, node.entities.find), node.clock.now()
    positions = positions_of(received, rights, node.space, node.limits.ahead, bulk=bulk, now=now)
    stale = await await_to_the_end(node.control.move(positions, caller))
    for id in dict.fromkeys(position.entity for position in positions):
        if (entity := node.entities.find(id)) is not None:
            node.show_entity(entity)
    pending = node.control.peer_wants.own.waiting_for(caller.id)
    return MovedOut(accepted=len(positions), stale=stale, pending=pending)
