"""Entities: register sources and subscribers, show, change and remove them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.errors import ConflictError, PermissionDeniedError
from roamcast.model import Position, iso
from roamcast.node.auth import Caller
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import AnyCaller, CallerOrOperator, TheNode
from roamcast.node.http.home_route import HomeRoute
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.schemas.entities import (
    EntityOut,
    MeOut,
    PositionOut,
    SourceOut,
    SubscriberOut,
    TokenOut,
    WhereOut,
)
from roamcast.node.scene import layer_of
from roamcast.node.schemas import AttributesIn, EntityIn
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end
from roamcast.security.tokens import hash_token, new_token
from roamcast.store.registry.values import Entity, EntityKind

router = APIRouter(tags=["entities"], route_class=ApiRoute)
own = APIRouter(tags=["entities"], route_class=HomeRoute)

_ENTITY = BodyParser(EntityIn, anonymous=True)
_ATTRIBUTES = BodyParser(AttributesIn)

_AGAIN = "It was registered before, with this token. Nothing is changed."


@router.post(
    "/sources",
    status_code=201,
    openapi_extra=_ENTITY.openapi,
    responses={200: {"model": SourceOut, "description": _AGAIN}, **errors(409)},
)
async def register_source(request: Request, response: Response, node: TheNode) -> SourceOut:
    """Register a source. Its token is returned only here. 409 if the id is in use."""
    id, token = await _register(request, response, node, "source")
    return SourceOut(id=id, token=token)


@router.post(
    "/subscribers",
    status_code=201,
    openapi_extra=_ENTITY.openapi,
    responses={200: {"model": SubscriberOut, "description": _AGAIN}, **errors(409)},
)
async def register_subscriber(request: Request, response: Response, node: TheNode) -> SubscriberOut:
    """Register a subscriber. Its token is returned only here. 409 if the id is or was in use."""
    id, token = await _register(request, response, node, "subscriber")
    return SubscriberOut(id=id, token=token, name=node.office.names.of(id))


@own.get("/me", responses=errors(503))
async def show_me(node: TheNode, caller: AnyCaller) -> MeOut:
    """Show the calling entity. A source has `next_seq`, the number of its next event; a subscriber has its `name`."""
    entity = node.entities.get(caller.id)
    me = MeOut(**_fields_of(entity))
    if entity.kind == "subscriber":
        me.name = node.office.names.of(entity.id)
    else:
        me.next_seq = await node.sequences.next_of(entity.id)
    return me


@own.put("/me/attributes", openapi_extra=_ATTRIBUTES.openapi)
async def set_attributes(request: Request, node: TheNode, caller: AnyCaller) -> EntityOut:
    """Replace all attributes of the caller. Events published after the response carry the new ones."""
    attributes = (await _ATTRIBUTES.read(request, node)).root
    entity = await await_to_the_end(node.control.set_attributes(caller.id, attributes))
    node.show_entity(entity)
    return EntityOut(**_fields_of(entity))


@router.delete("/me", status_code=204)
async def unregister(node: TheNode, caller: AnyCaller) -> None:
    """Remove the caller permanently. Its token becomes invalid.

    A subscriber's subscriptions and mailbox are removed too, and its id cannot be registered again. The id of a source
    can be registered again; its sequence numbers continue after those already used.
    """
    entity = node.entities.get(caller.id)
    if caller.kind == "subscriber":
        await node.office.mailboxes.remove(caller.id)
    subscriptions = await await_to_the_end(node.control.remove(caller.id))
    node.remove_features(layer_of(entity), [entity.id])
    node.remove_features("subscriptions", subscriptions)
    node.waiters.notify([node.office.names.of(entity.id)])


@own.delete("/me/position", status_code=204)
async def forget_position(node: TheNode, caller: AnyCaller) -> None:
    """Erase the caller's position and binding history. Bindings that need its position end."""
    await await_to_the_end(node.control.erase_position(caller.id))
    entity = node.entities.get(caller.id)
    node.remove_features(layer_of(entity), [entity.id])


@router.post("/entities/{id}/token", responses=errors(404))
async def renew_token(id: str, node: TheNode, caller: CallerOrOperator) -> TokenOut:
    """Replace the token of an entity. The new one is returned only here; the old one becomes invalid.

    For the entity itself and the operator. The mailbox of a subscriber that is elsewhere is recalled.
    """
    _check_self(id, caller)
    entity = node.entities.get(id)
    token = new_token()
    await await_to_the_end(node.control.set_token(id, hash_token(token)))
    if entity.kind == "subscriber":
        await node.office.recall(id)
    return TokenOut(id=id, kind=entity.kind, token=token)


@own.get("/entities/{id}", responses=errors(404, 503))
async def show_entity(id: str, node: TheNode, caller: CallerOrOperator) -> WhereOut:
    """Show an entity with its position and subscriptions: a subscriber's own, or those bound to a source now.

    `count` is their number; `subscriptions` lists the first of them. For the entity itself and the operator.
    """
    own = node.office.names.id_of(id)  # a visitor is known by its name, which may also be the id of a source
    if own is not None and (caller == Caller(own, "subscriber") or node.entities.find(id) is None):
        id = own
    _check_self(id, caller)
    entity = node.entities.get(id)
    if entity.kind == "source":
        bound = await await_to_the_end(node.control.query(lambda adapter: adapter.entity_status(id).subscriptions))
        first, count = list(bound[: node.limits.page]), len(bound)
    else:
        first, count = await run_in_threadpool(_subscriptions_of, node, id)
    return WhereOut(**_fields_of(entity), subscriptions=first, count=count)


def _check_self(id: str, caller: Caller | None) -> None:
    if caller is not None and caller.id != id:
        raise PermissionDeniedError(
            f"the token belongs to {caller.id}", where="id", hint="use the token of the entity itself"
        )


def _subscriptions_of(node: Node, subscriber: str) -> tuple[list[str], int]:
    """The first subscriptions, and their number."""
    first = node.registry.subscriptions(subscriber, limit=node.limits.page)
    return [subscription.id for subscription in first], node.registry.subscription_count(subscriber)


async def _register(request: Request, response: Response, node: Node, kind: EntityKind) -> tuple[str, str]:
    """Register the entity that the request describes; its id and its token. Raises ConflictError."""
    body = await _ENTITY.read(request, node)
    position = None
    if body.x is not None and body.y is not None:
        node.space.check_point(body.x, body.y)
        position = Position(body.id, body.x, body.y, node.clock.now())
    token = body.token or new_token()
    entity = Entity(body.id, kind, hash_token(token), body.attributes, position)
    if kind == "subscriber":
        node.office.names.check(entity.id)
    if kind == "subscriber" and node.entities.find(entity.id) is None:
        await node.office.mailboxes.register(entity.id)
    try:
        await await_to_the_end(node.control.register(entity))
    except ConflictError:
        known = node.entities.find(entity.id)
        if known is None or (known.kind, known.token_hash) != (kind, entity.token_hash):
            raise
        response.status_code = 200
        return entity.id, token
    if position:
        node.show_entity(entity)
    return entity.id, token


def _fields_of(entity: Entity) -> dict[str, Any]:
    """The fields of an EntityOut."""
    at = entity.position
    return {
        "id": entity.id,
        "kind": entity.kind,
        "attributes": dict(entity.attributes),
        "position": at and PositionOut(x=at.x, y=at.y, time=iso(at.time)),
    }
