"""`roamcast subscribe`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roamcast.cli.credentials import DELAYS, connect
from roamcast.cli.options import DEFAULT_URL, Url
from roamcast.client import Client
from roamcast.errors import InputError

__all__ = ["subscribe"]

Box = tuple[float, float, float, float]


def subscribe(
    subscriber: Annotated[str, typer.Option(help="Id of the subscriber; registered when first used.")],
    lacl: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="What is wanted, in LACL; or a file that says it.")
    ] = None,
    box: Annotated[
        Box | None, typer.Option(metavar="MIN_X MIN_Y MAX_X MAX_Y", help="Only events inside this rectangle.")
    ] = None,
    term: Annotated[list[str] | None, typer.Option(help="Only events that carry this term; may be repeated.")] = None,
    id: Annotated[str | None, typer.Option(help="Id of the subscription; made up if left out.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Subscribe in LACL; or by region, by terms (an event must carry all of them), or both. Prints the id.

    Example: roamcast subscribe --subscriber anna --box -0.5 51.3 0.3 51.7 --term fire

    Example: roamcast subscribe --subscriber anna --lacl 'Select Where &context = noise and &location in nearest'
    """
    if lacl is None and box is None and not term:
        raise InputError("it does not say what is wanted", hint="give --lacl, or --box, or --term, or both of these")
    if lacl is not None and (box is not None or term):
        raise InputError("--lacl says it all", hint="leave out --box and --term, or put them into the text")
    text = _read(lacl[1:]) if lacl is not None and lacl.startswith("@") else lacl
    _check(url, text, box)
    with connect(url, "subscriber", subscriber) as client:
        typer.echo(client.subscribe(text, box=box, terms=term or (), id=id))


def _check(url: str, text: str | None, box: Box | None) -> None:
    """Before anybody is registered: what the node would refuse, as far as one can tell without its places."""
    from roamcast import model
    from roamcast.lacl import check, parse
    from roamcast.space import SPACES

    with Client(url, delays=DELAYS) as anybody:
        space = SPACES.get(str(anybody.health().get("space")))
    if text is not None:
        check(parse(text), space=space)
    elif box is not None and space is not None:
        try:
            space.check_box(model.Box(*box))
        except InputError as error:
            raise InputError(error.message, where=f"--box: {error.where}", hint=error.hint) from None


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a text in UTF-8"
        raise InputError(f"cannot be read: {reason}", where=file, hint="give @ and the path of a text file") from error
