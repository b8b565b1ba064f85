"""The fields of an entity in responses."""

from __future__ import annotations

from typing import Any

from roamcast.model import iso
from roamcast.node.http.schemas.entities import PositionOut
from roamcast.store.registry.values import Entity

__all__ = ["fields_of"]


def fields_of(entity: Entity) -> dict[str, Any]:
    """The fields of an EntityOut."""
    at = entity.position
    return {
        "id": entity.id,
        "kind": entity.kind,
        "attributes": dict(entity.attributes),
        "position": at and PositionOut(x=at.x, y=at.y, time=iso(at.time)),
        "gateway": entity.gateway,
    }
