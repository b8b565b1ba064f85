"""The states of the subscriptions in the scene: which are not simply active, since when, and why."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from roamcast.bind.lcesm.views import SubscriptionStatus
from roamcast.errors import RoamcastError
from roamcast.failures import wall_time
from roamcast.model import iso
from roamcast.node.control.binder_adapter import BinderAdapter
from roamcast.node.control.writer import ControlWriter
from roamcast.node.path_states import PathStates
from roamcast.node.scene import Feature, LayerChange, Scene

__all__ = ["SceneStates"]

log = logging.getLogger(__name__)

_AT_ONCE: Final = 200  # statuses read from the binder in one refresh; if there are more, they take turns
_LAYER: Final = "subscriptions"
_FIELDS: Final = ("state", "since", "why")
# Everybody sees the page. The binder's own reasons could tell attributes and positions of subscribers.
_WHY: Final = {
    "start": "no source has been found yet",
    "inactive": "its source is gone",
    "stop": "its life-control does not hold",
}


class SceneStates:
    """Keeps the states of the subscriptions in a scene up to date. Belongs to the event loop of the scene."""

    def __init__(self, scene: Scene, control: ControlWriter, paths: PathStates) -> None:
        self._scene = scene
        self._control = control
        self._paths = paths
        self._turn = 0

    async def refresh(self) -> None:
        """Change the features of subscriptions whose state has changed since the last time, and no others."""
        shown = self._scene.layer(_LAYER)
        if not shown:
            return
        ids = list(shown)
        try:
            statuses = await asyncio.wrap_future(self._control.query(lambda adapter: self._read(adapter, ids)))
        except RoamcastError as error:
            log.debug("states of the scene: %s", error)
            return
        changed = await asyncio.to_thread(self._changed, dict(shown), statuses)
        still_shown = self._scene.layer(_LAYER)
        current = {id: feature for id, feature in changed.items() if id in still_shown}
        if current:
            self._scene.apply(LayerChange(_LAYER, current), time.monotonic())

    def _read(self, adapter: BinderAdapter, ids: Sequence[str]) -> dict[str, SubscriptionStatus | None]:
        """The status of subscriptions with a lifecycle; None of those whose turn it is not."""
        known = [id for id in ids if id in adapter]
        first = self._turn if self._turn < len(known) else 0
        self._turn = first + _AT_ONCE
        statuses = {id: adapter.status(id) for id in known[first : self._turn]}
        return {id: statuses.get(id) for id in known}

    def _changed(
        self, shown: Mapping[str, Feature], statuses: Mapping[str, SubscriptionStatus | None]
    ) -> dict[str, Feature]:
        """The features that are not as they were."""
        paths = self._paths.now()
        changed: dict[str, Feature] = {}
        for id, feature in shown.items():
            status = statuses.get(id)
            if status is None and id in statuses:
                continue
            state: tuple[str, str, str] | None = None
            if status is not None and status.state.value != "active":
                state = status.state.value, iso(status.since), _WHY[status.state.value]
            else:
                sources = status.sources if status is not None and status.plan == "bind" else None
                if (path := paths.of(id, sources)) is not None:
                    noticed = feature["since"] if feature.get("state") == path.state else iso(wall_time())
                    state = path.state, noticed if path.since is None else iso(path.since), path.why
            if state != (tuple(feature.get(name) for name in _FIELDS) if "state" in feature else None):
                plain = {name: value for name, value in feature.items() if name not in _FIELDS}
                changed[id] = plain if state is None else {**plain, **dict(zip(_FIELDS, state, strict=True))}
        return changed
