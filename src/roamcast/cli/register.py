"""`roamcast register`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from roamcast.cli.attributes import AttributeOption, attributes_of
from roamcast.cli.credentials import register as registered
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["register"]


class Role(StrEnum):
    source = "source"
    subscriber = "subscriber"


def register(
    kind: Annotated[Role, typer.Argument(help="What it is.", metavar="source|subscriber")],
    id: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    attribute: Annotated[list[str] | None, AttributeOption] = None,
    at: Annotated[tuple[float, float] | None, typer.Option(metavar="X Y", help="Where it is.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Register a source or a subscriber, and keep its token for the other commands.

    Example: roamcast register source mic-1 --attribute context=noise --attribute floor=2 --at 8.5 53.5
    """
    x, y = at or (None, None)
    registered(url, kind.value, id, attributes_of(attribute or ()), x, y).close()
    typer.echo(f"registered {kind.value} {id}")
