"""The scene: named layers of points, lines and areas that the page draws, and those who watch it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import shapely

from roamcast import model
from roamcast.errors import CapacityError
from roamcast.lacl import Query
from roamcast.lacl.syntax import BoxRegion
from roamcast.places import Places
from roamcast.store.registry.values import Entity

__all__ = [
    "LAYERS",
    "Change",
    "Feature",
    "Scene",
    "Watcher",
    "entity_feature",
    "layer_of",
    "place_features",
    "subscription_feature",
]

Feature = Mapping[str, Any]
"""{"geometry": a GeoJSON geometry, "label": text, "kind": text}"""

LAYERS = ("sources", "subscribers", "subscriptions", "places")
"""The layers that only the node changes."""


@dataclass(frozen=True, slots=True)
class Change:
    """To one layer: clear it, then remove features, then set some, for `ttl` seconds or for good."""

    layer: str
    set: Mapping[str, Feature] = field(default_factory=dict)
    remove: Iterable[str] = ()
    clear: bool = False
    ttl: float | None = None


class Scene:
    """Belongs to one event loop; `now` is in seconds of any steady clock.

    Memory is bounded: by `most_features` in all layers together, and for each watcher by as many changes that it
    has not taken.
    """

    def __init__(self, title: str, space: str, *, most_features: int, most_watchers: int) -> None:
        self._title = title
        self._space = space
        self._most_features = most_features
        self._most_watchers = most_watchers
        self._layers: dict[str, dict[str, Feature]] = {}
        self._ends: dict[tuple[str, str], float] = {}
        self._counters: dict[str, int] = {}
        self._watchers: set[Watcher] = set()
        self.stopped = False

    def snapshot(self) -> dict[str, Any]:
        return {
            "title": self._title,
            "space": self._space,
            "layers": self._layers,
            "counters": self._counters,
        }

    def apply(self, change: Change, now: float) -> None:
        """Raises CapacityError, and changes nothing, if there would be too many features."""
        present = self._layers.get(change.layer, {})
        gone = set(present) if change.clear else present.keys() & set(change.remove)
        gone -= change.set.keys()
        added = len(change.set.keys() - present.keys())
        if added and self._size() + added - len(gone) > self._most_features:
            raise CapacityError(
                f"the scene has room for {self._most_features} features",
                where="set",
                hint="remove some, or give them a ttl",
            )
        self._remove(change.layer, gone)
        if change.set:
            self._layers.setdefault(change.layer, {}).update(change.set)
        for id in change.set:
            if change.ttl is None:
                self._ends.pop((change.layer, id), None)
            else:
                self._ends[change.layer, id] = now + change.ttl
        self._tell(change.layer, change.set, gone)

    def expire(self, now: float) -> None:
        """Remove the features whose time is over."""
        over: defaultdict[str, set[str]] = defaultdict(set)
        for (layer, id), end in self._ends.items():
            if end <= now:
                over[layer].add(id)
        for layer, ids in over.items():
            self._remove(layer, ids)
            self._tell(layer, {}, ids)

    def count(self, counters: Mapping[str, int]) -> None:
        """Show these counters, if they have changed."""
        if counters != self._counters:
            self._counters = dict(counters)
            for watcher in self._watchers:
                watcher.count(self._counters)

    def check_room(self) -> None:
        """Raises CapacityError when no more may watch."""
        if len(self._watchers) >= self._most_watchers:
            raise CapacityError(f"{self._most_watchers} watch the scene already", hint="try again later")

    @contextmanager
    def watched(self) -> Iterator[Watcher]:
        """Raises CapacityError when no more may watch."""
        self.check_room()
        watcher = Watcher(self)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def stop(self) -> None:
        self.stopped = True
        for watcher in self._watchers:
            watcher.bell.set()

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    @property
    def most_features(self) -> int:
        return self._most_features

    def _size(self) -> int:
        return sum(len(features) for features in self._layers.values())

    def _remove(self, layer: str, ids: Iterable[str]) -> None:
        features = self._layers.get(layer, {})
        for id in ids:
            features.pop(id, None)
            self._ends.pop((layer, id), None)
        if not features:
            self._layers.pop(layer, None)

    def _tell(self, layer: str, set: Mapping[str, Feature], gone: Iterable[str]) -> None:
        for watcher in self._watchers:
            watcher.tell(layer, set, gone)


class Watcher:
    """What one watcher has not taken yet, newest state only. One that falls too far behind gets a snapshot again."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._behind = True
        self._changes: defaultdict[str, dict[str, Feature | None]] = defaultdict(dict)
        self._counters: Mapping[str, int] | None = None
        self.bell = asyncio.Event()

    def tell(self, layer: str, set: Mapping[str, Feature], gone: Iterable[str]) -> None:
        if self._behind:
            return
        changes = self._changes[layer]
        changes.update(dict.fromkeys(gone))
        changes.update(set)
        if sum(map(len, self._changes.values())) > self._scene.most_features:
            self._changes.clear()
            self._behind = True
        self.bell.set()

    def count(self, counters: Mapping[str, int]) -> None:
        self._counters = counters
        self.bell.set()

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """What to send, as (name, data), oldest first. The first ever is a snapshot."""
        self.bell.clear()
        if self._behind:
            self._behind, self._counters = False, None
            return [("snapshot", self._scene.snapshot())]
        messages: list[tuple[str, dict[str, Any]]] = []
        for layer, changes in self._changes.items():
            messages.append(
                (
                    "change",
                    {
                        "layer": layer,
                        "set": {id: feature for id, feature in changes.items() if feature is not None},
                        "remove": [id for id, feature in changes.items() if feature is None],
                    },
                )
            )
        self._changes.clear()
        if self._counters is not None:
            messages.append(("counters", dict(self._counters)))
            self._counters = None
        return messages


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
