"""`roamcast subscribe`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import connect
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["subscribe"]

Box = tuple[float, float, float, float]


def subscribe(
    subscriber: Annotated[str, typer.Option(help="Id of the subscriber; registered when first used.")],
    box: Annotated[
        Box | None, typer.Option(metavar="MIN_X MIN_Y MAX_X MAX_Y", help="Only events inside this rectangle.")
    ] = None,
    term: Annotated[list[str] | None, typer.Option(help="Only events that carry this term; may be repeated.")] = None,
    id: Annotated[str | None, typer.Option(help="Id of the subscription; made up if left out.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Subscribe to events by region, by terms (an event must carry all of them), or both; prints the id.

    Example: roamcast subscribe --subscriber anna --box -0.5 51.3 0.3 51.7 --term fire
    """
    with connect(url, "subscriber", subscriber) as client:
        typer.echo(client.subscribe(box=box, terms=term or (), id=id))
