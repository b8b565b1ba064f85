"""`roamcast migrate`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import Tokens, known
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["migrate"]


def migrate(
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="Id of the subscriber at its home.")],
    to: Annotated[str, typer.Argument(metavar="URL", help="Address of the node where it is now.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Bring the mailbox of a subscriber to the node where it is now; its subscriptions stay at home.

    The other commands then know it there by its name. Example: roamcast migrate ann http://south.example:8080
    """
    with known(url, subscriber) as client:
        name = client.me()["name"]
        client.migrate(to)
        Tokens().put(to.rstrip("/"), name, lambda: client.mailbox_token or "")
    typer.echo(f"{name} is served at {to} now: roamcast pull --subscriber {name} --url {to}")
