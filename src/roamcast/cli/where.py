"""`roamcast where`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from roamcast.cli.credentials import Tokens, known
from roamcast.cli.options import DEFAULT_URL, Url
from roamcast.cli.tables import clock_time
from roamcast.client import Client
from roamcast.durable import refusals_named
from roamcast.errors import InputError

__all__ = ["where"]


def where(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber.")],
    operator_token_file: Annotated[
        Path | None, typer.Option(help="File with the operator's token, which shows everybody.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of the node's data, where that file is.")] = Path("roamcast-data"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show where a source or a subscriber is, what it is like, and its subscriptions or those bound to it.

    With its own token, if that is kept here; else with the operator's.

    Example: roamcast where anna
    """
    with _client(url, entity, operator_token_file, data) as client:
        found = client.where(entity)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False) if as_json else _text(found))


def _client(url: str, entity: str, given: Path | None, data: Path) -> Client:
    file = given or data / "operator.token"
    if given is None and (Tokens().get(url, entity) is not None or not file.is_file()):
        return known(url, entity)
    if not file.is_file():
        raise InputError("there is no such file", where=str(file), hint="it is DATA/operator.token of the node")
    with refusals_named(file):
        return Client(url, file.read_text().strip(), delays=(0.1, 0.4))


def _text(found: dict[str, Any]) -> str:
    lines = [f"{found['kind']} {found['id']}"]
    position = found["position"]
    if position is None:
        lines.append("position: not known")
    else:
        lines.append(f"position: {position['x']:.10g}, {position['y']:.10g}, since {clock_time(position['time'])}")
    lines += (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in found["attributes"].items())
    what = "bound to it" if found["kind"] == "source" else "subscriptions"
    shown = ", ".join(found["subscriptions"]) or "none"
    more = found["count"] - len(found["subscriptions"])
    lines.append(f"{what}: {shown}" + (f", and {more} more" if more else ""))
    return "\n".join(lines)
