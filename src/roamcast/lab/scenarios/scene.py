"""Drawing on the scene of a node."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from roamcast.client import AsyncClient
from roamcast.errors import NotFoundError
from roamcast.lab.scenarios.participants import Sleep

__all__ = ["Feature", "Scenery", "feature", "if_scene_shown", "maintain_scenery"]

Feature: TypeAlias = dict[str, Any]
Scenery: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Features by layer and id."""

_PAUSE: Final = 5.0


def feature(geometry: str, coordinates: Any, label: str, kind: str) -> Feature:
    """Make a feature for the scene; `geometry` is a GeoJSON type."""
    return {"geometry": {"type": geometry, "coordinates": coordinates}, "label": label, "kind": kind}


async def if_scene_shown(drawing: Callable[[], Awaitable[None]]) -> None:
    """Draw, unless the node has no scene."""
    with contextlib.suppress(NotFoundError):
        await drawing()


async def maintain_scenery(operator: AsyncClient, scenery: Scenery, sleep: Sleep) -> None:
    """Draw static layers, and draw them again after the node has restarted."""
    while True:
        drawn = (await operator.scene())["layers"]
        for layer, features in scenery.items():
            if drawn.get(layer, {}).keys() != features.keys():
                await operator.update_scene(layer, set=features, clear=True)
        await sleep(_PAUSE)
