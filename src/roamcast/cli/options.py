"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roamcast.client.transport import DEFAULT_URL

__all__ = ["DEFAULT_DATA", "DEFAULT_URL", "Data", "OperatorTokenFile", "Url"]

DEFAULT_DATA = Path("roamcast-data")

Url = Annotated[str, typer.Option("--url", envvar="ROAMCAST_URL", help="Address of the node.")]
Data = Annotated[
    Path,
    typer.Option("--data", envvar="ROAMCAST_DATA", help="Folder of the node's data, where the operator's token is."),
]
OperatorTokenFile = Annotated[
    Path | None, typer.Option("--operator-token-file", help="File with the operator's token, which shows everybody.")
]
