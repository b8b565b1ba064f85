"""`roamcast unsubscribe`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import known
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["unsubscribe"]


def unsubscribe(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the subscription.")],
    subscriber: Annotated[str, typer.Option(help="Id of the subscriber.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Remove a subscription. Letters that are in the mailbox stay there.

    Example: roamcast unsubscribe --subscriber anna 71f29e6e24204acca0956de0fd253240
    """
    with known(url, subscriber) as client:
        client.unsubscribe(id)
    typer.echo(f"removed subscription {id}")
