"""The node, its peers and its scene. Generated from async_node_calls.py by scripts/generate-client; do not edit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from roamcast.client.calls import ApiCalls
from roamcast.client.transport import Transport

__all__ = ["NodeCalls"]


class NodeCalls:
    """The part of `Client` about the node, its peers and its scene."""

    _calls: ApiCalls
    _transport: Transport

    def nearest(self, x: float, y: float) -> str:
        """URL of the known node nearest to a point; the node's own if no position is known."""
        return self._transport.run(self._calls.nearest(x, y))

    def offices(self) -> list[dict[str, Any]]:
        """The peers of the node: `domain`, `url`, whether each is `reachable`, and its `last_response_at`."""
        return self._transport.run(self._calls.offices())

    def invite(self, domain: str) -> str:
        """Create an invitation for the node of `domain` to join. Needs the operator token."""
        return self._transport.run(self._calls.invite(domain))

    def expel(self, domain: str) -> None:
        """Remove a peer. Needs the operator token."""
        self._transport.run(self._calls.expel(domain))

    def scene(self) -> dict[str, Any]:
        """What the page draws."""
        return self._transport.run(self._calls.scene())

    def update_scene(
        self,
        layer: str,
        *,
        set: Mapping[str, Any] | None = None,
        remove: Iterable[str] = (),
        clear: bool = False,
        ttl: float | None = None,
    ) -> None:
        """Change a layer of the scene. Needs the operator token.

        A feature is {"geometry": GeoJSON geometry, "label": str, "kind": str}. With `ttl`, features disappear after
        that many seconds.
        """
        self._transport.run(self._calls.update_scene(layer, set, remove, clear, ttl))

    def health(self) -> dict[str, Any]:
        """State of the node and its pipeline."""
        return self._transport.run(self._calls.health())
