"""The scenario's port. To add one: implement it in a module here and name it in `SCENARIOS`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["Scenario"]


class Scenario(Protocol):
    """A small world that lives at a node: its sources publish, its subscribers read, its scene is drawn.

    It uses the node's HTTP API alone, outlives restarts of the node, and may be run again on the same
    `folder`, where it keeps the tokens of its entities.
    """

    @property
    def title(self) -> str:
        """Its name for people, such as the heading of the live page."""

    @property
    def domains(self) -> Sequence[str]:
        """The domains it needs, with a node for each; it lives at that of the first. None if any one node will do."""

    @property
    def space(self) -> str:
        """What its coordinates mean."""

    @property
    def places(self) -> Path | None:
        """GeoJSON with the places that its subscriptions name."""

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        """Live at the node at `url` until `stop` is set, then return soon.

        Raises what trying again cannot mend, such as PermissionDeniedError for a wrong operator token.
        """
