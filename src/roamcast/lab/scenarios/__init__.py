"""Demo scenarios, which use only the public API of nodes.

To add one, implement `Scenario` in a module here as a class with the module's name, and add that to `SCENARIOS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

__all__ = ["SCENARIOS", "Scenario", "load_scenario"]

SCENARIOS: Final = ("city", "conference", "relief", "roaming")


class Scenario(Protocol):
    """A simulated world at one or more nodes: sources publish, subscribers read, and the scene is drawn.

    It uses only the HTTP API, survives restarts of the node, and can be run again on the same `folder`, where it keeps
    the tokens of its entities.
    """

    @property
    def title(self) -> str:
        """Display name, for example the heading of the live page."""

    @property
    def domains(self) -> Sequence[str]:
        """Domains that it needs, one node for each; it starts at the first. Empty if any single node will do."""

    @property
    def space(self) -> str:
        """Name of its coordinate system."""

    @property
    def places(self) -> Path | None:
        """GeoJSON file with the places that its subscriptions name."""

    async def run(self, url: str, operator_token: str, stop: asyncio.Event, folder: Path) -> None:
        """Run at the node at `url` until `stop` is set, then return soon.

        Raises errors that a retry cannot fix, such as PermissionDeniedError for a wrong operator token.
        """


def load_scenario(name: str) -> Scenario:
    """One of SCENARIOS. Only its own module is imported: some need more packages than others."""
    module = import_module(f"{__name__}.{name}")
    return cast(Scenario, getattr(module, name.capitalize())())
