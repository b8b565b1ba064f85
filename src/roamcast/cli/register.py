"""`roamcast register`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from roamcast.cli.credentials import register as registered
from roamcast.cli.options import DEFAULT_URL, Url
from roamcast.errors import InputError

__all__ = ["register"]

_TRUTHS = {"true": True, "false": False}


class Role(StrEnum):
    source = "source"
    subscriber = "subscriber"


def register(
    kind: Annotated[Role, typer.Argument(help="What it is.", metavar="source|subscriber")],
    id: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An attribute: a number, true, false or a text; may be repeated."),
    ] = None,
    at: Annotated[tuple[float, float] | None, typer.Option(metavar="X Y", help="Where it is.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Register a source or a subscriber, and keep its token for the other commands.

    Example: roamcast register source mic-1 --attribute context=noise --attribute floor=2 --at 8.5 53.5
    """
    x, y = at or (None, None)
    attributes = dict(map(_attribute, attribute or ()))
    registered(url, kind.value, id, attributes, x, y).close()
    typer.echo(f"registered {kind.value} {id}")


def _attribute(text: str) -> tuple[str, str | float | bool]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise InputError(f"{text!r} is not NAME=VALUE", where="--attribute", hint="such as context=noise")
    if value in _TRUTHS:
        return name, _TRUTHS[value]
    try:
        return name, float(value)
    except ValueError:
        return name, value
