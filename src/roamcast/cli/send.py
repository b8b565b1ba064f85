"""`roamcast send`"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from roamcast.cli.credentials import connect
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["send"]


def send(
    to: Annotated[str, typer.Argument(metavar="NAME", help="Receiver: [system.]domain.host.id, or an id of the node.")],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Text, or any JSON value with --json.")],
    subscriber: Annotated[str, typer.Option(help="Id or name of the sender; an id is registered when first used.")],
    title: Annotated[str, typer.Option(help="Title of the letter.")] = "",
    ttl: Annotated[float | None, typer.Option(min=0, help="Seconds that it may wait to be read.")] = None,
    number: Annotated[
        int | None, typer.Option(min=1, help="Of a letter that may have been sent before: it comes once.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The message is JSON.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Write a letter to another subscriber, wherever it is.

    Example: roamcast send south.node.ben "See you at the pier" --subscriber ann
    """
    from roamcast.errors import InputError

    try:
        value = json.loads(message) if as_json else message
    except ValueError as error:
        hint = "leave --json out to send it as text"
        raise InputError(f"the message is no JSON: {error}", where="message", hint=hint) from None
    with connect(url, "subscriber", subscriber) as client:
        sent = client.send(to, value, title=title, ttl=ttl, number=number)
    typer.echo(f"sent letter {sent.number} to {sent.receiver}")
