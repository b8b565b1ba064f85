"""`roamcast move`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import known
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["move"]


def move(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber.")],
    x: Annotated[float, typer.Argument(metavar="X", help="Where it is now: x, or longitude.")],
    y: Annotated[float, typer.Argument(metavar="Y", help="y, or latitude.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Tell where a source or a subscriber is now.

    Example: roamcast move anna -0.12 51.5
    """
    with known(url, entity) as client:
        client.move(x, y)
    typer.echo(f"{entity} is at {x:g}, {y:g}")
