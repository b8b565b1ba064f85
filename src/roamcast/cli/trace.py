"""`roamcast trace`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import connect
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["trace"]


def trace(
    to: Annotated[str, typer.Argument(metavar="NAME", help="Receiver of the letter.")],
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="What `roamcast send` said.")],
    subscriber: Annotated[str, typer.Option(help="Id or name of the sender.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Tell what became of a letter.

    Example: roamcast trace south.node.ben 1 --subscriber ann
    """
    with connect(url, "subscriber", subscriber) as client:
        found = client.trace(to, number)
    typer.echo(f"{found.state} (says office {found.office})")
