"""`roamcast lacl …`: check and explain subscriptions without a node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roamcast.cli.match import SpaceName
from roamcast.errors import InputError

if TYPE_CHECKING:
    from roamcast.lacl import Query

__all__ = ["lacl"]

lacl = typer.Typer(no_args_is_help=True, help="Check and explain subscriptions written in LACL.")

File = Annotated[str | None, typer.Argument(metavar="FILE|-", help="A file with one query; - is standard input.")]
Text = Annotated[str | None, typer.Option("-e", "--text", help="The query itself, instead of a file.")]
PlacesFile = Annotated[Path | None, typer.Option("--places", help="GeoJSON with the places that exist.")]
Space = Annotated[SpaceName, typer.Option("--space", help="'geographic': degrees; 'planar': metres.")]


@lacl.command()
def check(file: File = None, text: Text = None, places: PlacesFile = None, space: Space = SpaceName.geographic) -> None:
    """Print the canonical form of a query, or say what is wrong with it, where, and what was expected.

    Example: roamcast lacl check -e 'Select Where &context=noise and &location in nearest'
    """
    from roamcast.lacl import to_text

    typer.echo(to_text(_query(file, text, places, space)))


@lacl.command()
def explain(
    file: File = None, text: Text = None, places: PlacesFile = None, space: Space = SpaceName.geographic
) -> None:
    """Print the parts of a query and its plan, as JSON.

    Example: roamcast lacl explain query.lacl --places rooms.geojson --space planar
    """
    import orjson

    from roamcast.lacl import explain

    typer.echo(orjson.dumps(explain(_query(file, text, places, space)), option=orjson.OPT_INDENT_2).decode())


def _query(file: str | None, text: str | None, places: Path | None, space: SpaceName) -> Query:
    from roamcast.lacl import check, parse
    from roamcast.places import Places
    from roamcast.space import SPACES

    if (file is None) == (text is None):
        raise InputError("one query is wanted", where="lacl", hint="give FILE, - for standard input, or -e TEXT")
    query = parse(_read(file) if text is None else text)
    known = None if places is None else Places.from_geojson(places, SPACES[space])
    return check(query, places=known, space=SPACES[space])


def _read(file: str | None) -> str:
    """A little more than the parser takes at most, so that it can say what is too long."""
    from roamcast.lacl import MAX_BYTES

    where = "standard input" if file in (None, "-") else str(file)
    try:
        if file in (None, "-"):
            content = sys.stdin.buffer.read(MAX_BYTES + 4)
        else:
            with Path(str(file)).open("rb") as handle:
                content = handle.read(MAX_BYTES + 4)
        return content.decode("utf-8-sig", "ignore" if len(content) > MAX_BYTES + 3 else "strict")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where, hint="check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(
            "is not UTF-8", where=where, hint=f"byte {error.start + 1} is not; save it as UTF-8"
        ) from error
