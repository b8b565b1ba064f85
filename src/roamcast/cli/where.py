"""`roamcast where`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from roamcast.cli.attributes import attribute_lines
from roamcast.cli.credentials import Tokens, known, operator
from roamcast.cli.options import DEFAULT_DATA, DEFAULT_URL, Data, OperatorTokenFile, Url
from roamcast.cli.tables import clock_time
from roamcast.client import Client

__all__ = ["where"]

_SHOWN = 10  # subscriptions; --json has more


def where(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber.")],
    operator_token_file: OperatorTokenFile = None,
    data: Data = DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show where a source or a subscriber is, what it is like, and its subscriptions or those bound to it.

    With its own token, if that is kept here; else with the operator's.

    Example: roamcast where anna
    """
    with _client(url, entity, operator_token_file, data) as client:
        found = client.entity(entity)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False) if as_json else _text(found))


def _client(url: str, entity: str, given: Path | None, data: Path) -> Client:
    is_kept = Tokens().get(url, entity) is not None
    if given is None and (is_kept or not (data / "operator.token").is_file()):
        return known(url, entity)
    return operator(url, given, data)


def _text(found: dict[str, Any]) -> str:
    lines = [f"{found['kind']} {found['id']}"]
    position = found["position"]
    if position is None:
        lines.append("position: not known")
    else:
        lines.append(f"position: {position['x']:.10g}, {position['y']:.10g}, since {clock_time(position['time'])}")
    lines += attribute_lines(found["attributes"])
    what = "bound to it" if found["kind"] == "source" else "subscriptions"
    shown = found["subscriptions"][:_SHOWN]
    more = found["count"] - len(shown)
    lines.append(f"{what}: {', '.join(shown) or 'none'}" + (f", and {more:,} more" if more else ""))
    return "\n".join(lines)
