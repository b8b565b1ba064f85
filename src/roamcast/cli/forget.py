"""`roamcast forget`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import known
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["forget"]


def forget(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Have the node forget where a source or a subscriber is, and what it was bound to in the past.

    Example: roamcast forget anna
    """
    with known(url, entity) as client:
        client.forget_position()
    typer.echo(f"forgot where {entity} is and was")
