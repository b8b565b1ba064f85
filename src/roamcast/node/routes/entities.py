"""Sources and subscribers: registration, and who one is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from roamcast.model import Position
from roamcast.node.bodies import EntityIn
from roamcast.node.dependencies import AnyCaller, TheNode
from roamcast.node.features import entity_feature, layer_of
from roamcast.node.forms import Form
from roamcast.node.security import hash_of, new_token
from roamcast.node.service import Node, now
from roamcast.node.times import iso
from roamcast.store.port import Entity, EntityKind

router = APIRouter(tags=["entities"])

_ENTITY = Form(EntityIn)


@router.post("/sources", status_code=201, openapi_extra=_ENTITY.openapi)
async def register_source(request: Request, node: TheNode) -> dict[str, Any]:
    """Register a source. Its token is told here and never again. 409 if the id is taken."""
    return await _register(request, node, "source")


@router.post("/subscribers", status_code=201, openapi_extra=_ENTITY.openapi)
async def register_subscriber(request: Request, node: TheNode) -> dict[str, Any]:
    """Register a subscriber. Its token is told here and never again. 409 if the id is taken."""
    return await _register(request, node, "subscriber")


@router.get("/me")
async def me(node: TheNode, caller: AnyCaller) -> dict[str, Any]:
    """The entity whose token this is; for a source also `next_seq`, the number its next event gets."""
    entity = await run_in_threadpool(node.registry.entity, caller.id)
    position = entity.position
    answer: dict[str, Any] = {
        "id": entity.id,
        "kind": entity.kind,
        "attributes": dict(entity.attributes),
        "position": position and {"x": position.x, "y": position.y, "time": iso(position.time)},
    }
    if entity.kind == "source":
        answer["next_seq"] = await node.sequences.next_of(entity.id)
    return answer


async def _register(request: Request, node: Node, kind: EntityKind) -> dict[str, Any]:
    given = await _ENTITY.read(request, node)
    position = None
    if given.x is not None and given.y is not None:
        node.space.check_point(given.x, given.y)
        position = Position(given.id, given.x, given.y, now())
    token = new_token()
    entity = Entity(given.id, kind, hash_of(token), given.attributes, position)
    await run_in_threadpool(node.registry.add_entity, entity)
    if position:
        node.show(layer_of(entity), entity.id, entity_feature(entity))
    return {"id": entity.id, "kind": entity.kind, "token": token}
