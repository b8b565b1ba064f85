"""What a node is asked about itself, for the asyncio client. `node_calls.py` is generated from this file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from roamcast.client.calls import ApiCalls
from roamcast.client.transport import AsyncTransport

__all__ = ["AsyncNodeCalls"]


class AsyncNodeCalls:
    """The part of `AsyncClient` about the node, its peers and its scene."""

    _calls: ApiCalls
    _transport: AsyncTransport

    async def nearest(self, x: float, y: float) -> str:
        """URL of the known node nearest to a point; the node's own if no position is known."""
        return await self._transport.run(self._calls.nearest(x, y))

    async def offices(self) -> list[dict[str, Any]]:
        """The peers of the node: `domain`, `url`, whether each is `reachable`, and its `last_response_at`."""
        return await self._transport.run(self._calls.offices())

    async def invite(self, domain: str) -> str:
        """Create an invitation for the node of `domain` to join. Needs the operator token."""
        return await self._transport.run(self._calls.invite(domain))

    async def expel(self, domain: str) -> None:
        """Remove a peer. Needs the operator token."""
        await self._transport.run(self._calls.expel(domain))

    async def scene(self) -> dict[str, Any]:
        """What the page draws."""
        return await self._transport.run(self._calls.scene())

    async def update_scene(
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
        await self._transport.run(self._calls.update_scene(layer, set, remove, clear, ttl))

    async def health(self) -> dict[str, Any]:
        """State of the node and its pipeline."""
        return await self._transport.run(self._calls.health())
