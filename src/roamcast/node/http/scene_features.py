"""What the node itself shows in the scene: places, where entities are, and the boxes of subscriptions."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import shapely

from roamcast import model
from roamcast.lacl import Query
from roamcast.lacl.syntax import BoxRegion
from roamcast.node.http.scene import Feature
from roamcast.places import Places
from roamcast.store.registry.values import Entity

__all__ = ["LAYERS", "entity_feature", "layer_of", "place_features", "subscription_feature"]

LAYERS = ("sources", "subscribers", "subscriptions", "places")
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


def subscription_feature(subscriber: str, query: Query) -> Feature | None:
    """None for a subscription that has no box."""
    if not isinstance(query.location, BoxRegion):
        return None
    label = f"{subscriber}: {' '.join(query.terms) or 'everything'}"
    geometry = {"type": "Polygon", "coordinates": [_ring(query.location.box)]}
    return {"geometry": geometry, "label": label[:200], "kind": "subscription"}


def place_features(places: Places) -> Iterator[tuple[str, Feature]]:
    """Each place by its name; one of several parts is shown in several."""
    for name in places.names:
        parts = shapely.get_parts(places.get(name))
        for number, part in enumerate(parts, start=1):
            geometry = orjson.loads(shapely.to_geojson(part))
            id = name if len(parts) == 1 else f"{name} ({number} of {len(parts)})"
            yield id, {"geometry": geometry, "label": name[:200], "kind": "place"}


def _ring(box: model.Box) -> list[list[float]]:
    # A box across the antimeridian is drawn beyond it, in one piece.
    east = box.max_x if box.min_x <= box.max_x else box.max_x + 360
    return [
        [box.min_x, box.min_y],
        [east, box.min_y],
        [east, box.max_y],
        [box.min_x, box.max_y],
        [box.min_x, box.min_y],
    ]
