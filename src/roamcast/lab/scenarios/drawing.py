"""How scenarios draw on the scene of a node."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from roamcast.client import AsyncClient
from roamcast.errors import NotFoundError
from roamcast.lab.scenarios.crew import Sleep

__all__ = ["Feature", "Scenery", "feature", "keep_scenery", "where_shown"]

Feature: TypeAlias = dict[str, Any]
Scenery: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Features by layer and id."""

_PAUSE: Final = 5.0


def feature(geometry: str, coordinates: Any, label: str, kind: str) -> Feature:
    """What the scene draws; `geometry` is a type of GeoJSON."""
    return {"geometry": {"type": geometry, "coordinates": coordinates}, "label": label, "kind": kind}


async def where_shown(drawing: Callable[[], Awaitable[None]]) -> None:
    """Draw, but at a node that shows no scene live on without."""
    with contextlib.suppress(NotFoundError):
        await drawing()


async def keep_scenery(operator: AsyncClient, scenery: Scenery, sleep: Sleep) -> None:
    """Draw what stands still, layer by layer, and again whenever a node that has restarted has forgotten it."""
    while True:
        drawn = (await operator.scene())["layers"]
        for layer, features in scenery.items():
            if drawn.get(layer, {}).keys() != features.keys():
                await operator.update_scene(layer, set=features, clear=True)
        await sleep(_PAUSE)
