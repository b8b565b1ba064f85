"""The scene: named layers of features that the page draws, and the streams that watch it."""

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
from roamcast.places import Places
from roamcast.store.registry.values import Entity

__all__ = [
    "LAYERS",
    "Feature",
    "LayerChange",
    "Scene",
    "SceneWatcher",
    "entity_feature",
    "layer_of",
    "place_features",
    "subscription_feature",
]

Feature = Mapping[str, Any]
"""{"geometry": a GeoJSON geometry, "label": text, "kind": text}

A subscription that follows sources has no geometry. One that is not simply active also has `state`, `since` and `why`.
"""

LAYERS = ("sources", "subscribers", "subscriptions", "places")
"""The layers that the node maintains."""


@dataclass(frozen=True, slots=True)
class LayerChange:
    """A change of one layer: clear it, then remove features, then set some, for `ttl` seconds or permanently."""

    layer: str
    set: Mapping[str, Feature] = field(default_factory=dict)
    remove: Iterable[str] = ()
    clear: bool = False
    ttl: float | None = None


class Scene:
    """All layers. Belongs to one event loop. `now` is in seconds of a monotonic clock.

    Memory is bounded: all layers have at most `most_features` features, and each watcher has at most as many pending
    changes.
    """

    def __init__(self, title: str, space: str, *, most_features: int, most_watchers: int) -> None:
        self._title = title
        self._space = space
        self._most_features = most_features
        self._most_watchers = most_watchers
        self._layers: dict[str, dict[str, Feature]] = {}
        self._ends: dict[tuple[str, str], float] = {}
        self._counters: dict[str, int] = {}
        self._watchers: set[SceneWatcher] = set()
        self.stopped = False

    def snapshot(self) -> dict[str, Any]:
        return {"title": self._title, "space": self._space, "layers": self._layers, "counters": self._counters}

    def layer(self, name: str) -> Mapping[str, Feature]:
        """The features of a layer by id."""
        return self._layers.get(name, {})

    def apply(self, change: LayerChange, now: float) -> None:
        """Apply a change. Raises CapacityError, without a change, if there would be too many features."""
        present = self._layers.get(change.layer, {})
        gone = set(present) if change.clear else present.keys() & set(change.remove)
        gone -= change.set.keys()
        added = len(change.set.keys() - present.keys())
        if added and self._size() + added - len(gone) > self._most_features:
            raise CapacityError(
                f"the scene has at most {self._most_features} features", where="set", hint="remove some, or set a ttl"
            )
        self._remove(change.layer, gone)
        if change.set:
            self._layers.setdefault(change.layer, {}).update(change.set)
        for id in change.set:
            if change.ttl is None:
                self._ends.pop((change.layer, id), None)
            else:
                self._ends[change.layer, id] = now + change.ttl
        self._notify(change.layer, change.set, gone)

    def expire(self, now: float) -> None:
        """Remove the features whose ttl has passed."""
        expired: defaultdict[str, set[str]] = defaultdict(set)
        for (layer, id), end in self._ends.items():
            if end <= now:
                expired[layer].add(id)
        for layer, ids in expired.items():
            self._remove(layer, ids)
            self._notify(layer, {}, ids)

    def set_counters(self, counters: Mapping[str, int]) -> None:
        """Send the counters to watchers, if they have changed."""
        if counters != self._counters:
            self._counters = dict(counters)
            for watcher in self._watchers:
                watcher.set_counters(self._counters)

    def check_capacity(self) -> None:
        """Raises CapacityError if there are too many watchers."""
        if len(self._watchers) >= self._most_watchers:
            raise CapacityError(f"{self._most_watchers} viewers already watch the scene", hint="try again later")

    @contextmanager
    def watch(self) -> Iterator[SceneWatcher]:
        """Raises CapacityError if there are too many watchers."""
        self.check_capacity()
        watcher = SceneWatcher(self)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def stop(self) -> None:
        self.stopped = True
        for watcher in self._watchers:
            watcher.event.set()

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

    def _notify(self, layer: str, set: Mapping[str, Feature], gone: Iterable[str]) -> None:
        for watcher in self._watchers:
            watcher.add(layer, set, gone)


class SceneWatcher:
    """The pending changes of one watcher, newest state only. One that falls too far behind gets a new snapshot."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._behind = True
        self._changes: defaultdict[str, dict[str, Feature | None]] = defaultdict(dict)
        self._counters: Mapping[str, int] | None = None
        self.event = asyncio.Event()

    def add(self, layer: str, set: Mapping[str, Feature], gone: Iterable[str]) -> None:
        if self._behind:
            return
        changes = self._changes[layer]
        changes.update(dict.fromkeys(gone))
        changes.update(set)
        if sum(map(len, self._changes.values())) > self._scene.most_features:
            self._changes.clear()
            self._behind = True
        self.event.set()

    def set_counters(self, counters: Mapping[str, int]) -> None:
        self._counters = counters
        self.event.set()

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """The messages to send, as (name, data), oldest first. The first ever is a snapshot."""
        self.event.clear()
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
    """The feature of an entity; None without a position. Attributes `label` and `kind` set how it is shown."""
    if entity.position is None:
        return None
    geometry = {"type": "Point", "coordinates": [entity.position.x, entity.position.y]}
    label, kind = (entity.attributes.get(name) for name in ("label", "kind"))
    return {
        "geometry": geometry,
        "label": label[:200] if isinstance(label, str) and label else entity.id,
        "kind": kind[:64] if isinstance(kind, str) and kind else entity.kind,
    }


def subscription_feature(subscriber: str, body: str | None) -> Feature | None:
    """The feature of a subscription with a box, by the body of its control record, or of one that follows sources.

    None for others.
    """
    if body is None:
        return {"geometry": None, "label": f"{subscriber}: follows sources"[:200], "kind": "subscription"}
    values = orjson.loads(body)
    if values["box"] is None or "circle" in values or "area" in values:
        return None
    label = f"{subscriber}: {' '.join(values['terms']) or 'everything'}"
    geometry = {"type": "Polygon", "coordinates": [_ring(model.Box(*values["box"]))]}
    return {"geometry": geometry, "label": label[:200], "kind": "subscription"}


def place_features(places: Places) -> Iterator[tuple[str, Feature]]:
    """The features of places by name; a place of several parts has several."""
    for name in places.names:
        parts = shapely.get_parts(places.get(name))
        for number, part in enumerate(parts, start=1):
            geometry = orjson.loads(shapely.to_geojson(part))
            id = name if len(parts) == 1 else f"{name} ({number} of {len(parts)})"
            yield id, {"geometry": geometry, "label": name[:200], "kind": "place"}


def _ring(box: model.Box) -> list[list[float]]:
    # A box across the antimeridian is drawn in one piece, beyond 180 degrees.
    east = box.max_x if box.min_x <= box.max_x else box.max_x + 360
    return [
        [box.min_x, box.min_y],
        [east, box.min_y],
        [east, box.max_y],
        [box.min_x, box.max_y],
        [box.min_x, box.min_y],
    ]
