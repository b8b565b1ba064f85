"""`roamcast leave`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import Tokens, known
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["leave"]

_GOES = {
    "source": "Its bindings end.",
    "subscriber": "Its subscriptions and its mailbox go with it, and nobody can have its id again.",
}


def leave(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Remove a source or a subscriber from the node for good, with all it has there, and forget its token.

    Example: roamcast leave mic-1
    """
    with known(url, entity) as client:
        kind = client.me()["kind"]
        if not yes:
            typer.confirm(f"Remove {kind} {entity} for good? {_GOES[kind]}", abort=True)
        client.unregister()
    Tokens().forget(url, entity)
    typer.echo(f"removed {kind} {entity}")
