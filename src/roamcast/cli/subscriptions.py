"""`roamcast subscriptions`"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from roamcast.cli.credentials import known, operator
from roamcast.cli.options import DEFAULT_DATA, DEFAULT_URL, Data, OperatorTokenFile, Url
from roamcast.cli.tables import clock_time, table
from roamcast.client import Binding, Subscription
from roamcast.lacl import parse
from roamcast.lacl.printing import number_text
from roamcast.lacl.syntax import RangLoc

__all__ = ["subscriptions"]


def subscriptions(
    subscriber: Annotated[
        str | None, typer.Option(help="Id of the subscriber.", show_default="everybody, with the operator's token")
    ] = None,
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Only this one, with its history.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many bindings of its history.")] = 100,
    operator_token_file: OperatorTokenFile = None,
    data: Data = DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show subscriptions: state, bound source, since when, and why one hears nothing.

    Without --subscriber those of everybody, which needs the operator's token.

    Example: roamcast subscriptions --subscriber anna
    """
    by_operator = subscriber is None or operator_token_file is not None
    with operator(url, operator_token_file, data) if by_operator else known(url, str(subscriber)) as client:
        if id is None:
            found = [one for one in client.subscriptions() if subscriber in (None, one.subscriber)]
            history = []
        else:
            found, history = [client.subscription(id)], client.bindings(id, limit=limit)
    if as_json:
        shown = {"subscriptions": [asdict(one) for one in found]}
        if id is not None:
            shown["bindings"] = [asdict(one) for one in history]
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    elif not found:
        typer.echo("no subscriptions", err=True)
    else:
        typer.echo(_states(found, whose=subscriber is None))
        if id is not None:
            typer.echo(f"\n{found[0].text}\n\n{_history(history)}")


def _states(found: list[Subscription], *, whose: bool) -> str:
    rows = []
    for one in found:
        names = (one.id, one.subscriber) if whose else (one.id,)
        sources = ", ".join(one.sources) or _sources_of(one)
        rows.append((*names, one.state, sources, clock_time(one.since), one.why or ""))
    return table(("id", *(["subscriber"] if whose else []), "state", "source", "since", "why not"), rows)


def _sources_of(subscription: Subscription) -> str:
    if subscription.plan == "bind":
        return "-"
    around = parse(subscription.text).location
    if isinstance(around, RangLoc):
        return f"every event within {number_text(around.radius)} m of {subscription.subscriber}"
    return "every event"


def _history(history: list[Binding]) -> str:
    if not history:
        return "it has had no source"
    rows = [(one.source, clock_time(one.bound_at), clock_time(one.unbound_at) or "now") for one in history]
    return table(("source", "from", "to"), rows)
