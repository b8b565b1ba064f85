"""`roamcast pull`"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from roamcast.cli.credentials import connect
from roamcast.cli.options import DEFAULT_URL, Url
from roamcast.client import Client, Letter

__all__ = ["pull"]

_PORTION = 500


def pull(
    subscriber: Annotated[str, typer.Option(help="Id of the subscriber; registered when first used.")],
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many letters.", show_default="all")] = None,
    wait: Annotated[float, typer.Option(min=0, max=30, help="Seconds to wait for the first letter.")] = 0.0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with letters as they come.")] = False,
    no_ack: Annotated[bool, typer.Option("--no-ack", help="Leave the letters in the mailbox.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the letters of a mailbox, one JSON object a line, and acknowledge what was printed.

    Example: roamcast pull --subscriber anna --wait 10
    """
    with connect(url, "subscriber", subscriber) as client:
        portions = ([letter] for letter in client.letters(ack=False)) if follow else _waiting(client, wait)
        left, printed = limit, 0
        for portion in portions:
            letters = portion[:left]
            for letter in letters:
                typer.echo(json.dumps(asdict(letter), ensure_ascii=False))
            sys.stdout.flush()  # what nobody took is not acknowledged
            if not no_ack:
                client.acknowledge(letters[-1])
            printed += len(letters)
            left = None if left is None else left - len(letters)
            if left == 0:
                return
        if not printed:
            typer.echo("no letters", err=True)


def _waiting(client: Client, seconds: float) -> Iterator[list[Letter]]:
    """The letters that wait, portion by portion; if there is none, the first that comes within `seconds`."""
    letters = client.pull(limit=_PORTION, wait=seconds)
    while letters:
        yield letters
        letters = client.pull(limit=_PORTION, after=letters[-1].offset)
