"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.client.transport import DEFAULT_URL

__all__ = ["DEFAULT_URL", "Url"]

Url = Annotated[str, typer.Option("--url", envvar="ROAMCAST_URL", help="Address of the node.")]
