"""`roamcast explain-match`"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from roamcast.cli.credentials import known, operator
from roamcast.cli.options import DEFAULT_DATA, DEFAULT_URL, Data, OperatorTokenFile, Url
from roamcast.cli.tables import table
from roamcast.durable import storage_errors
from roamcast.errors import InputError

__all__ = ["explain_match"]

_HOLDS = {True: "yes", False: "no", None: "unknown"}
_VERDICT = {True: "it matches", False: "it does not match", None: "it cannot be said whether it matches"}


def explain_match(
    subscription: Annotated[str, typer.Option(help="Id of the subscription.")],
    event: Annotated[
        str, typer.Option(metavar="JSON|FILE|-", help="The event as JSON, as in a letter; - is standard input.")
    ],
    subscriber: Annotated[
        str | None, typer.Option(help="Id of the subscriber.", show_default="anybody, with the operator's token")
    ] = None,
    operator_token_file: OperatorTokenFile = None,
    data: Data = DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Say why an event does or would match a subscription, or not, by what is so now. Nothing is published.

    Example: roamcast explain-match --subscriber anna --subscription q --event '{"source": "cam", "x": 4, "y": 50}'
    """
    given = _event(event)
    by_operator = subscriber is None or operator_token_file is not None
    with operator(url, operator_token_file, data) if by_operator else known(url, str(subscriber)) as client:
        found = client.explain(subscription, given)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False) if as_json else _text(found))


def _event(text: str) -> dict[str, Any]:
    if text == "-":
        text = sys.stdin.read()
    elif not text.lstrip().startswith("{"):
        path = Path(text)
        with storage_errors(path):
            if not path.is_file():
                raise InputError("no such file", where=text, hint="give an event as JSON, or a file that holds one")
            text = path.read_text()
    try:
        event = json.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where="event", hint='like {"source": "cam", "x": 4, "y": 50}') from error
    if not isinstance(event, dict):
        raise InputError("not a JSON object", where="event", hint='like {"source": "cam", "x": 4, "y": 50}')
    return event


def _text(found: dict[str, Any]) -> str:
    verdict = _VERDICT[found["matches"]]
    rows = [(check["check"], _HOLDS[check["holds"]], check["why"]) for check in found["checks"]]
    return f"{verdict}\n\n{table(('check', 'holds', 'why'), rows)}"
