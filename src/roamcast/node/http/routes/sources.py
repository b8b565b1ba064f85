"""Sources: register them, also many of a gateway, and what a gateway does for each of its sources."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.errors import AuthenticationError, InputError, RoamcastError
from roamcast.node.callers import Caller
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.arrow_bodies import TABLE_TYPES
from roamcast.node.http.bulk_rows import NDJSON, Row, Rows, accept_each, add_rows, is_bulk, read_rows
from roamcast.node.http.dependencies import Gateway, GatewayOrOperator, RegisteringGateway, TheNode
from roamcast.node.http.entity_fields import fields_of
from roamcast.node.http.openapi import OPTIONAL_TOKEN, errors
from roamcast.node.http.registration import position_of, register
from roamcast.node.http.request_parsing import BodyParser, media_type, parse_off_loop, read_bytes
from roamcast.node.http.schemas.entities import EntityOut, RegisteredOut, SourceOut, SourcesOut
from roamcast.node.schemas import AttributesIn, EntityIn
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end
from roamcast.store.registry.port import unknown_source
from roamcast.store.registry.values import Entity

router = APIRouter(prefix="/sources", tags=["entities"], route_class=ApiRoute)

_SOURCE = BodyParser(EntityIn)
_SOURCES = BodyParser(EntityIn, bulk="sources")
_ATTRIBUTES = BodyParser(AttributesIn)
_LINES: Final = '{"id":"meter-1","x":8.5,"y":53.5}\n{"id":"meter-2","attributes":{"floor":2}}\n'

Limit = Annotated[int, Query(ge=1, description="Maximum number; the node has a limit too.")]


@router.post(
    "",
    status_code=201,
    response_class=Response,
    openapi_extra=_SOURCES.openapi_with(NDJSON, {}, _LINES) | OPTIONAL_TOKEN,
    responses={
        200: {"description": "It was registered before; or a list was sent.", "model": RegisteredOut},
        201: {"description": "The source was registered.", "model": SourceOut},
        **errors(409),
    },
)
async def register_source(
    request: Request,
    node: TheNode,
    gateway: RegisteringGateway,
    all_or_none: Annotated[bool, Query(description="Register a list completely or not at all.")] = False,
) -> Response:
    """Register a source. Its token is returned only here. 409 if the id is in use.

    With the token of a gateway, the source belongs to the gateway and has no token of its own; registering it again
    changes nothing. A JSON list, or NDJSON (`application/x-ndjson`: one source in each line), registers many. The
    response has the number `added`, of those that exist already (`existing`) and of `refused` ones, and in `sources`,
    in the same order, each `id` and whether it is `new`, or an `error`. Each is registered or refused on its own. With
    `all_or_none` none is registered if one is refused.
    """
    limits, type_ = node.limits, media_type(request)
    if type_ in TABLE_TYPES:
        raise InputError("sources cannot be sent as a table", where="Content-Type", hint="send JSON or NDJSON")
    body = await read_bytes(request, node, min(limits.body, limits.anonymous_body) if gateway is None else limits.body)
    if gateway is None:
        if is_bulk(body, type_):
            raise AuthenticationError(
                "only a gateway registers many sources", where="Authorization", hint="send the token of a gateway"
            )
        registered = await register(node, "source", await parse_off_loop(body, lambda: _SOURCE.parse(body, limits)))
        return _json(SourceOut(id=registered.id, token=registered.token).model_dump(), registered.status)
    if is_bulk(body, type_):
        return await _register_many(node, gateway, body, type_, all_or_none=all_or_none)
    source = await parse_off_loop(body, lambda: _read(node, gateway.id, body))
    (is_new,) = await _register(node, gateway, [source], all_or_none=True)
    return _json(SourceOut(id=source.id, token=None, gateway=gateway.id).model_dump(), 201 if is_new else 200)


@router.get("", response_class=Response, responses={200: {"model": SourcesOut}})
async def list_sources(
    node: TheNode,
    gateway: Gateway,
    limit: Limit = 1000,
    after: Annotated[str, Query(description="Only ids after this one.")] = "",
) -> Response:
    """List the sources of the calling gateway by id. `more` tells whether there are more."""
    limit = min(limit, node.limits.page)

    def read() -> str:
        ids = nsmallest(limit + 1, (id for id in node.entities.sources_of(gateway.id) if id > after))
        sources = map(node.entities.find, ids[:limit])
        shown = [EntityOut(**fields_of(source)) for source in sources if source is not None]
        return SourcesOut(sources=shown, more=len(ids) > limit).model_dump_json()

    return Response(await run_in_threadpool(read), media_type="application/json")


@router.put("/{id}/attributes", openapi_extra=_ATTRIBUTES.openapi, responses=errors(404))
async def set_source_attributes(id: str, request: Request, node: TheNode, gateway: Gateway) -> EntityOut:
    """Replace all attributes of a source of the calling gateway.

    Events published after the response carry the new ones.
    """
    attributes = (await _ATTRIBUTES.read(request, node)).root
    _check_source(node, id)
    source = await await_to_the_end(node.control.set_attributes(id, attributes, gateway))
    node.show_entity(source)
    return EntityOut(**fields_of(source))


@router.delete("/{id}/position", status_code=204, responses=errors(404))
async def forget_source_position(id: str, node: TheNode, gateway: Gateway) -> None:
    """Erase the position and the binding history of a source of the calling gateway."""
    _check_source(node, id)
    await await_to_the_end(node.control.erase_position(id, gateway))
    node.remove_features("sources", [id])


@router.delete("/{id}", status_code=204, responses=errors(404))
async def remove_source(id: str, node: TheNode, gateway: GatewayOrOperator) -> None:
    """Remove a source permanently. For the gateway that it belongs to and the operator.

    Its id can be registered again; its sequence numbers continue after those already used.
    """
    _check_source(node, id)
    await await_to_the_end(node.control.remove(id, gateway))
    node.remove_features("sources", [id])


async def _register_many(node: Node, gateway: Caller, body: bytes, type_: str, *, all_or_none: bool) -> Response:
    rows = await parse_off_loop(body, lambda: read_rows(body, type_, "sources", node.limits.bulk))

    def accept(chunk: Rows, first: int) -> list[tuple[str, Entity] | RoamcastError]:
        def read(row: Row, number: int) -> tuple[str, Entity]:
            source = _read(node, gateway.id, row if isinstance(row, bytes) else orjson.dumps(row))
            return source.id, source

        return accept_each(chunk, first, "sources", read)

    async def add(sources: Sequence[tuple[str, Entity]], first: int) -> Sequence[bool | RoamcastError]:
        return await _register(node, gateway, [source for _, source in sources], all_or_none=all_or_none)

    return _json(await add_rows(rows, "sources", accept, add, all_or_none=all_or_none))


async def _register(
    node: Node, gateway: Caller, sources: Sequence[Entity], *, all_or_none: bool
) -> Sequence[bool | RoamcastError]:
    outcomes = await await_to_the_end(node.gateway_requests.register_sources(gateway, sources, all_or_none=all_or_none))
    for source, is_new in zip(sources, outcomes, strict=True):
        if is_new is True and source.position is not None:
            node.show_entity(source)
    node.discovery.waiters.notify([gateway.id])
    return outcomes


def _read(node: Node, gateway: str, body: bytes) -> Entity:
    """The source that a request or a row describes. Raises InputError."""
    source = _SOURCE.parse(body, node.limits)
    if source.token is not None:
        raise InputError("a source of a gateway has no token of its own", where="token", hint="omit it")
    return Entity(source.id, "source", None, source.attributes, position_of(node, source), gateway)


def _check_source(node: Node, id: str) -> None:
    """Raises NotFoundError for an id that is not that of a source."""
    if (source := node.entities.find(id)) is None or source.kind != "source":
        raise unknown_source(id)


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
