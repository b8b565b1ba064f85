"""Sources and subscribers: registration, who one is, what one is like, leaving."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from roamcast.errors import PermissionDeniedError
from roamcast.model import Position, iso
from roamcast.node.auth import Caller
from roamcast.node.control.binder_adapter import BinderAdapter
from roamcast.node.http.dependencies import AnyCaller, CallerOrOperator, TheNode
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.scene import layer_of
from roamcast.node.schemas import AttributesIn, EntityIn
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end
from roamcast.security.tokens import hash_of, new_token
from roamcast.store.registry.values import Entity, EntityKind

router = APIRouter(tags=["entities"])

_ENTITY = BodyParser(EntityIn)
_ATTRIBUTES = BodyParser(AttributesIn)


@router.post("/sources", status_code=201, openapi_extra=_ENTITY.openapi)
async def register_source(request: Request, node: TheNode) -> dict[str, Any]:
    """Register a source. Its token is told here and never again. 409 if the id is taken."""
    return await _register(request, node, "source")


@router.post("/subscribers", status_code=201, openapi_extra=_ENTITY.openapi)
async def register_subscriber(request: Request, node: TheNode) -> dict[str, Any]:
    """Register a subscriber. Its token is told here and never again. 409 if the id is taken, or ever was."""
    return await _register(request, node, "subscriber")


@router.get("/me")
async def me(node: TheNode, caller: AnyCaller) -> dict[str, Any]:
    """The entity whose token this is; for a source also `next_seq`, the number its next event gets; for a
    subscriber its `name`.
    """
    entity = node.entities.get(caller.id)
    answer = _described(entity)
    if entity.kind == "subscriber":
        answer["name"] = node.post.names.of(entity.id)
    if entity.kind == "source":
        answer["next_seq"] = await node.sequences.next_of(entity.id)
    return answer


@router.put("/me/attributes", openapi_extra=_ATTRIBUTES.openapi)
async def set_attributes(request: Request, node: TheNode, caller: AnyCaller) -> dict[str, Any]:
    """Replace all attributes of the caller. Events that it posts after the answer carry the new ones."""
    given = await _ATTRIBUTES.read(request, node)
    entity = await await_to_the_end(node.control.set_attributes(caller.id, given.root))
    node.show_entity(entity)
    return _described(entity)


@router.delete("/me", status_code=204)
async def leave(node: TheNode, caller: AnyCaller) -> None:
    """Leave for good: the token is worth nothing any more.

    With a subscriber go its subscriptions and its mailbox, and its id is never given again. A source may be registered
    under the same id again; its numbers go on above those that were used.
    """
    entity = node.entities.get(caller.id)
    if caller.kind == "subscriber":
        await node.post.mailboxes.remove(caller.id)
    subscriptions = await await_to_the_end(node.control.remove(caller.id))
    node.show_gone(layer_of(entity), [entity.id])
    node.show_gone("subscriptions", subscriptions)
    node.waiters.notify([node.post.names.of(entity.id)])


@router.delete("/me/position", status_code=204)
async def forget_position(node: TheNode, caller: AnyCaller) -> None:
    """Forget where the caller is, and what it was bound to in the past. Bindings that need its position end."""
    await await_to_the_end(node.control.erase_position(caller.id))
    entity = node.entities.get(caller.id)
    node.show_gone(layer_of(entity), [entity.id])


@router.post("/entities/{id}/token")
async def new_token_of(id: str, node: TheNode, caller: CallerOrOperator) -> dict[str, Any]:
    """Give an entity another token, told here and never again; the one before is worth nothing from now on.

    One does it for oneself, the operator for anybody. The mailbox of a subscriber that is elsewhere is called home.
    """
    _check_self(id, caller)
    entity = node.entities.get(id)
    token = new_token()
    await await_to_the_end(node.control.set_token(id, hash_of(token)))
    if entity.kind == "subscriber":
        await node.post.call_home(id)
    return {"id": id, "kind": entity.kind, "token": token}


@router.get("/entities/{id}")
async def where(id: str, node: TheNode, caller: CallerOrOperator) -> dict[str, Any]:
    """An entity, where it is, and its subscriptions: a subscriber's own, or those that are bound to a source now.

    `count` is how many there are; `subscriptions` has the first of them. One sees oneself; the operator sees all.
    """
    _check_self(id, caller)
    entity = node.entities.get(id)
    if entity.kind == "source":
        bound = await await_to_the_end(node.control.query(lambda binder: _bound_to(binder, id)))
        first, count = list(bound[: node.limits.page]), len(bound)
    else:
        first, count = await run_in_threadpool(_own_subscriptions, node, id)
    return {**_described(entity), "subscriptions": first, "count": count}


def _check_self(id: str, caller: Caller | None) -> None:
    if caller is not None and caller.id != id:
        raise PermissionDeniedError(f"this token is of {caller.id}", where="id", hint="use the token of that entity")


def _bound_to(binder: BinderAdapter, source: str) -> tuple[str, ...]:
    return binder.where(source).subscriptions


def _own_subscriptions(node: Node, subscriber: str) -> tuple[list[str], int]:
    """The first of them, and how many there are."""
    first = node.registry.subscriptions(subscriber, limit=node.limits.page)
    return [subscription.id for subscription in first], node.registry.subscription_count(subscriber)


async def _register(request: Request, node: Node, kind: EntityKind) -> dict[str, Any]:
    given = await _ENTITY.read(request, node)
    position = None
    if given.x is not None and given.y is not None:
        node.space.check_point(given.x, given.y)
        position = Position(given.id, given.x, given.y, node.clock.now())
    token = new_token()
    entity = Entity(given.id, kind, hash_of(token), given.attributes, position)
    if kind == "subscriber":
        node.post.names.check(entity.id)
    if kind == "subscriber" and node.entities.find(entity.id) is None:
        await node.post.mailboxes.register(entity.id)
    await await_to_the_end(node.control.register(entity))
    if position:
        node.show_entity(entity)
    answer = {"id": entity.id, "kind": entity.kind, "token": token}
    return {**answer, "name": node.post.names.of(entity.id)} if kind == "subscriber" else answer


def _described(entity: Entity) -> dict[str, Any]:
    position = entity.position
    return {
        "id": entity.id,
        "kind": entity.kind,
        "attributes": dict(entity.attributes),
        "position": position and {"x": position.x, "y": position.y, "time": iso(position.time)},
    }
