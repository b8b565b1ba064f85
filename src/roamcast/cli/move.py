"""`roamcast move`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import known
from roamcast.cli.options import DEFAULT_URL, Url
from roamcast.cli.tables import clock_time
from roamcast.errors import ConflictError

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
        if not client.move(x, y):
            since = clock_time(client.me()["position"]["time"])
            raise ConflictError(
                f"this changed nothing: a later position is known, of {since}",
                where=entity,
                hint="whoever told it has a clock that is ahead; tell it again after that time",
            )
    typer.echo(f"{entity} is at {x:g}, {y:g}")
