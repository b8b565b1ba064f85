"""Entities: register subscribers and gateways, show, change and remove entities. Sources are in `sources`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.errors import PermissionDeniedError
from roamcast.node.callers import Caller
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.bulk_rows import CHUNK
from roamcast.node.http.dependencies import AnyCaller, CallerOrOperator, TheNode
from roamcast.node.http.entity_fields import fields_of
from roamcast.node.http.home_route import HomeRoute
from roamcast.node.http.openapi import errors
from roamcast.node.http.registration import register
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.schemas.entities import EntityOut, GatewayOut, MeOut, SubscriberOut, TokenOut, WhereOut
from roamcast.node.scene import layer_of
from roamcast.node.schemas import AttributesIn, EntityIn, GatewayIn
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end
from roamcast.security.tokens import hash_token, new_token

router = APIRouter(tags=["entities"], route_class=ApiRoute)
own = APIRouter(tags=["entities"], route_class=HomeRoute)

_ENTITY = BodyParser(EntityIn, anonymous=True)
_GATEWAY = BodyParser(GatewayIn, anonymous=True)
_ATTRIBUTES = BodyParser(AttributesIn)

_AGAIN = "It was registered before, with this token. Nothing is changed."


@router.post(
    "/subscribers",
    status_code=201,
    openapi_extra=_ENTITY.openapi,
    responses={200: {"model": SubscriberOut, "description": _AGAIN}, **errors(409)},
)
async def register_subscriber(request: Request, response: Response, node: TheNode) -> SubscriberOut:
    """Register a subscriber. Its token is returned only here. 409 if the id is or was in use."""
    registered = await register(node, "subscriber", await _ENTITY.read(request, node))
    response.status_code = registered.status
    return SubscriberOut(id=registered.id, token=registered.token, name=node.office.names.of(registered.id))


@router.post(
    "/gateways",
    status_code=201,
    openapi_extra=_GATEWAY.openapi,
    responses={200: {"model": GatewayOut, "description": _AGAIN}, **errors(409)},
)
async def register_gateway(request: Request, response: Response, node: TheNode) -> GatewayOut:
    """Register a gateway, which acts for many sources. Its token is returned only here. 409 if the id is in use."""
    registered = await register(node, "gateway", await _GATEWAY.read(request, node))
    response.status_code = registered.status
    return GatewayOut(id=registered.id, token=registered.token)


@own.get("/me", responses=errors(503))
async def show_me(node: TheNode, caller: AnyCaller) -> MeOut:
    """Show the calling entity.

    A source has `next_seq`, the number of its next event; a subscriber has its `name`; a gateway has the number of its
    `sources`.
    """
    entity = node.entities.get(caller.id)
    me = MeOut(**fields_of(entity))
    match entity.kind:
        case "source":
            me.next_seq = await node.sequences.next_of(entity.id)
        case "subscriber":
            me.name = node.office.names.of(entity.id)
        case "gateway":
            me.sources = len(node.entities.sources_of(entity.id))
    return me


@own.put("/me/attributes", openapi_extra=_ATTRIBUTES.openapi)
async def set_attributes(request: Request, node: TheNode, caller: AnyCaller) -> EntityOut:
    """Replace all attributes of the caller. Events published after the response carry the new ones."""
    attributes = (await _ATTRIBUTES.read(request, node)).root
    entity = await await_to_the_end(node.control.set_attributes(caller.id, attributes, caller))
    node.show_entity(entity)
    return EntityOut(**fields_of(entity))


@router.delete("/me", status_code=204)
async def unregister(
    node: TheNode,
    caller: AnyCaller,
    sources: Annotated[bool, Query(description="Remove the sources of a gateway with it.")] = False,
) -> None:
    """Remove the caller permanently. Its token becomes invalid.

    A subscriber's subscriptions and mailbox are removed too, and its id cannot be registered again. The id of a source
    can be registered again; its sequence numbers continue after those already used. A gateway that has sources is
    removed only with them: send `sources=true`.
    """
    entity = node.entities.get(caller.id)
    if caller.kind == "subscriber":
        await node.office.mailboxes.remove(caller.id)
    if sources:
        await _remove_sources(node, caller)
    subscriptions = await await_to_the_end(node.control.remove(caller.id, caller))
    node.remove_features(layer_of(entity), [entity.id])
    node.remove_features("subscriptions", subscriptions)
    node.waiters.notify([node.office.names.of(entity.id)])


@own.delete("/me/position", status_code=204)
async def forget_position(node: TheNode, caller: AnyCaller) -> None:
    """Erase the caller's position and binding history. Bindings that need its position end."""
    if caller.kind == "gateway":
        raise PermissionDeniedError(
            "a gateway has no position",
            where="Authorization",
            hint="DELETE /v1/sources/{id}/position is for its sources",
        )
    await await_to_the_end(node.control.erase_position(caller.id, caller))
    entity = node.entities.get(caller.id)
    node.remove_features(layer_of(entity), [entity.id])


@router.post("/entities/{id}/token", responses=errors(404))
async def renew_token(id: str, node: TheNode, caller: CallerOrOperator) -> TokenOut:
    """Replace the token of an entity. The new one is returned only here; the old one becomes invalid.

    For the entity itself and the operator. The mailbox of a subscriber that is elsewhere is recalled. 409 for a source
    of a gateway, which has no token.
    """
    _check_self(id, caller)
    entity = node.entities.get(id)
    token = new_token()
    await await_to_the_end(node.control.set_token(id, hash_token(token), caller))
    if entity.kind == "subscriber":
        node.waiters.notify([node.office.names.of(id)])  # streams and polls with the old token end
        await node.office.recall(id)
    else:
        node.discovery.waiters.notify([id])
    return TokenOut(id=id, kind=entity.kind, token=token)


@own.get("/entities/{id}", responses=errors(404, 503))
async def show_entity(id: str, node: TheNode, caller: CallerOrOperator) -> WhereOut:
    """Show an entity with its position and subscriptions: a subscriber's own, or those bound to a source now.

    `count` is their number; `subscriptions` lists the first of them. For the entity itself, the gateway of a source,
    and the operator.
    """
    own = node.office.names.id_of(id)  # a visitor is known by its name, which may also be the id of a source
    if own is not None and (caller == Caller(own, "subscriber") or node.entities.find(id) is None):
        id = own
    source = node.entities.find(id)
    if caller is None or source is None or source.gateway != caller.id:
        _check_self(id, caller)
    entity = node.entities.get(id)
    if entity.kind == "source":
        read = node.control.query(lambda adapter: adapter.entity_status(id).subscriptions, caller, [id])
        bound = await await_to_the_end(read)
        first, count = list(bound[: node.limits.page]), len(bound)
    else:
        first, count = await run_in_threadpool(_subscriptions_of, node, id)
    sources = len(node.entities.sources_of(id)) if entity.kind == "gateway" else None
    return WhereOut(**fields_of(entity), subscriptions=first, count=count, sources=sources)


async def _remove_sources(node: Node, gateway: Caller) -> None:
    """Remove the sources of a gateway in chunks, so that other requests are handled in between."""
    sources = node.entities.sources_of(gateway.id)
    for first in range(0, len(sources), CHUNK):
        removed = await await_to_the_end(node.gateway_requests.remove_sources(gateway, sources[first : first + CHUNK]))
        node.remove_features("sources", removed)


def _check_self(id: str, caller: Caller | None) -> None:
    if caller is not None and caller.id != id:
        raise PermissionDeniedError(
            f"the token belongs to {caller.id}", where="id", hint="use the token of the entity itself"
        )


def _subscriptions_of(node: Node, subscriber: str) -> tuple[list[str], int]:
    """The first subscriptions, and their number."""
    first = node.registry.subscriptions(subscriber, limit=node.limits.page)
    return [subscription.id for subscription in first], node.registry.subscription_count(subscriber)
