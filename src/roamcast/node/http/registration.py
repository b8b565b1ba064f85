"""Registering an entity that has a token of its own."""

from __future__ import annotations

from typing import NamedTuple

from roamcast.errors import ConflictError
from roamcast.model import Position
from roamcast.node.schemas import EntityIn, GatewayIn
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end
from roamcast.security.tokens import hash_token, new_token
from roamcast.store.registry.values import Entity, EntityKind

__all__ = ["Registered", "position_of", "register"]


class Registered(NamedTuple):
    """An entity. It is not new if it was registered before, with the same token."""

    id: str
    token: str
    is_new: bool

    @property
    def status(self) -> int:
        """Of the response."""
        return 201 if self.is_new else 200


async def register(node: Node, kind: EntityKind, body: EntityIn | GatewayIn) -> Registered:
    """Register the entity that a request describes. Raises ConflictError."""
    token = body.token or new_token()
    position = position_of(node, body) if isinstance(body, EntityIn) else None
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
        return Registered(entity.id, token, is_new=False)
    if position:
        node.show_entity(entity)
    return Registered(entity.id, token, is_new=True)


def position_of(node: Node, body: EntityIn) -> Position | None:
    """Where the entity is now. Raises InputError for a point outside the space."""
    if body.x is None or body.y is None:
        return None
    node.space.check_point(body.x, body.y)
    return Position(body.id, body.x, body.y, node.clock.now())
