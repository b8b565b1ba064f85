"""What the node itself shows in the scene: where entities are, and the boxes of subscriptions."""

from __future__ import annotations

from roamcast.model import Box, Subscription
from roamcast.node.scene import Feature
from roamcast.store.port import Entity

__all__ = ["LAYERS", "entity_feature", "layer_of", "subscription_feature"]

LAYERS = ("sources", "subscribers", "subscriptions")
"""The layers that only the node changes."""


def layer_of(entity: Entity) -> str:
    return f"{entity.kind}s"


def entity_feature(entity: Entity) -> Feature | None:
    """None for an entity whose position is unknown. Its attributes `label` and `kind` say how it is shown."""
    if entity.position is None:
        return None
    geometry = {"type": "Point", "coordinates": [entity.position.x, entity.position.y]}
    label, kind = (entity.attributes.get(name) for name in ("label", "kind"))
    return {
        "geometry": geometry,
        "label": label[:200] if isinstance(label, str) and label else entity.id,
        "kind": kind[:64] if isinstance(kind, str) and kind else entity.kind,
    }


def subscription_feature(subscription: Subscription) -> Feature | None:
    """None for a subscription to anywhere."""
    if subscription.box is None:
        return None
    label = f"{subscription.subscriber}: {' '.join(subscription.terms) or 'everything'}"
    geometry = {"type": "Polygon", "coordinates": [_ring(subscription.box)]}
    return {"geometry": geometry, "label": label[:200], "kind": "subscription"}


def _ring(box: Box) -> list[list[float]]:
    # A box across the antimeridian is drawn beyond it, in one piece.
    east = box.max_x if box.min_x <= box.max_x else box.max_x + 360
    return [
        [box.min_x, box.min_y],
        [east, box.min_y],
        [east, box.max_y],
        [box.min_x, box.max_y],
        [box.min_x, box.min_y],
    ]
