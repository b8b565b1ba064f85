"""Commands that show state: entities, subscriptions, matches, letters; and LACL without a node."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roamcast.cli.attributes import attribute_lines
from roamcast.cli.options import (
    AlwaysJson,
    Data,
    EntityOrVisitor,
    Gateway,
    Json,
    OperatorTokenFile,
    SpaceName,
    Url,
    require,
)
from roamcast.cli.output import counted, local_time, print_json, print_result, table
from roamcast.cli.tokens import anonymous_client, entity_client, entity_or_operator_client, operator_or_entity_client
from roamcast.durable import storage_errors
from roamcast.errors import ExitCode, InputError

if TYPE_CHECKING:
    from roamcast.client import Binding, Subscription
    from roamcast.lacl import Query

__all__ = ["explain_match", "lacl", "sources", "status", "subscriptions", "trace", "where"]

_MAX_SHOWN: Final = 10  # subscriptions in text output
_HOLDS: Final = {True: "yes", False: "no", None: "unknown"}
_VERDICTS: Final = {True: "matches", False: "does not match", None: "unknown whether it matches"}
_EVENT_HINT: Final = 'for example {"source": "cam", "x": 4, "y": 50}'


def status(as_json: Json = False, url: Url = None) -> None:
    """Show the health of a node: what is wrong and since when, the lag and the pipeline.

    Exit code 0 if it is ok, 6 if it is degraded or does not respond.

    Example: roamcast status
    """
    with anonymous_client(url) as client:
        health = client.health()
    print_result(health, _health_text(health), as_json=as_json)
    if health["status"] != "ok":
        raise typer.Exit(ExitCode.UNAVAILABLE)


def where(
    entity: EntityOrVisitor,
    gateway: Gateway = None,
    operator_token_file: OperatorTokenFile = None,
    data: Data = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Show a source, a subscriber or a gateway: position, attributes, and its subscriptions or those bound to it.

    Uses the entity's own token, or that of the gateway, if it is stored here, otherwise the operator token.

    Example: roamcast where anna

    Example: roamcast where meter-1 --gateway hub
    """
    with entity_or_operator_client(url, gateway or entity, operator_token_file, data) as client:
        description = client.entity(entity)
    print_result(description, _entity_text(description), as_json=as_json)


def sources(
    gateway: Annotated[str, typer.Option(help="Id of the gateway.")], as_json: Json = False, url: Url = None
) -> None:
    """List the sources of a gateway: position, attributes, and whether anybody may use their events (demanded).

    Example: roamcast sources --gateway hub
    """
    with entity_client(url, gateway) as client:
        listed = client.sources()
        demand = next(client.source_demand()) if listed else {}
    listed = [{**source, "demanded": demand.get(source["id"], True)} for source in listed]
    if not as_json and not listed:
        typer.echo("no sources", err=True)
        return
    print_result({"sources": listed}, _source_table(listed), as_json=as_json)


def subscriptions(
    subscriber: Annotated[
        str | None,
        typer.Option(
            help="Id of the subscriber, or full name of a visitor.", show_default="all, with the operator token"
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Show only this subscription, with its binding history.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of bindings in the history.")] = 100,
    operator_token_file: OperatorTokenFile = None,
    data: Data = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Show subscriptions: state, bound source, since when, and why one receives nothing.

    Without --subscriber, those of all subscribers; this needs the operator token.

    Example: roamcast subscriptions --subscriber anna
    """
    history: list[Binding] = []
    with operator_or_entity_client(url, subscriber, operator_token_file, data) as client:
        if id is None:
            shown = client.subscriptions()
            if operator_token_file is not None and subscriber is not None:
                shown = [one for one in shown if one.subscriber == subscriber]
        else:
            shown, history = [client.subscription(id)], client.bindings(id, limit=limit)
    if as_json:
        result: dict[str, Any] = {"subscriptions": [asdict(one) for one in shown]}
        if id is not None:
            result["bindings"] = [asdict(one) for one in history]
        print_json(result)
    elif not shown:
        typer.echo("no subscriptions", err=True)
    else:
        typer.echo(_subscription_table(shown, with_subscriber=subscriber is None))
        if id is not None:
            typer.echo(f"\n{shown[0].lacl}\n\n{_history_table(history)}")


def explain_match(
    subscription: Annotated[str, typer.Option(help="Id of the subscription.")],
    event: Annotated[
        str, typer.Option(metavar="JSON|FILE|-", help="The event as JSON, as in a letter; - is standard input.")
    ],
    subscriber: Annotated[
        str | None,
        typer.Option(
            help="Id of the subscriber, or full name of a visitor.", show_default="any, with the operator token"
        ),
    ] = None,
    operator_token_file: OperatorTokenFile = None,
    data: Data = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Explain why an event does or does not match a subscription now. Nothing is published.

    Example: roamcast explain-match --subscriber anna --subscription q --event '{"source": "cam", "x": 4, "y": 50}'
    """
    fields = _read_event(event)
    with operator_or_entity_client(url, subscriber, operator_token_file, data) as client:
        result = client.explain_match(subscription, fields)
    rows = [(check["check"], _HOLDS[check["holds"]], check["why"]) for check in result["checks"]]
    text = f"{_VERDICTS[result['matches']]}\n\n{table(('check', 'holds', 'why'), rows)}"
    print_result(result, text, as_json=as_json)


def trace(
    to: Annotated[str, typer.Argument(metavar="NAME", help="Receiver of the letter.")],
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="Number that `roamcast send` printed.")],
    subscriber: Annotated[str, typer.Option(help="Sender: id, or full name of a visitor.")],
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Show what became of a letter.

    Example: roamcast trace south.node.ben 1 --subscriber ann
    """
    with entity_client(url, subscriber) as client:
        result = client.trace(to, number)
    print_result(asdict(result), f"{result.state} (according to office {result.office})", as_json=as_json)


def _health_text(health: dict[str, Any]) -> str:
    pipeline, lag = health["pipeline"], health["lag"]
    lines = [f"node {health['domain']}: {health['status']}"]
    if pipeline is None:
        lines.append("pipeline: none has reported")
    else:
        last = f"after batch {pipeline['batch']}" if pipeline["batch"] >= 0 else "no batch yet"
        line = f"pipeline: {last}, last heartbeat {local_time(pipeline['written_at'])}"
        if pipeline["running_batch"] is not None:
            line += f"; batch {pipeline['running_batch']} running since {local_time(pipeline['running_since'])}"
        if pipeline["waiting_for_storage"] is not None:
            line += f", waiting for storage: {pipeline['waiting_for_storage']}"
        lines.append(line)
        if pipeline["partitioning"] is not None:
            lines += _partitioning_lines(pipeline["partitioning"])
        if pipeline["archive"] is not None:
            lines += _archive_lines(pipeline["archive"])
    oldest = f", the oldest for {lag['seconds']:.1f} s" if lag["records"] else ""
    lines.append(f"lag: {counted(lag['records'], 'record')}{oldest}")
    if health["problems"]:
        rows = [(one["kind"], local_time(one["since"]), one["detail"]) for one in health["problems"]]
        lines += ["", table(("problem", "since", "detail"), rows)]
    return "\n".join(lines)


def _archive_lines(archive: dict[str, Any]) -> list[str]:
    line = f"archive: {archive['bytes'] / 1e6:,.1f} MB in {counted(archive['files'], 'file')}"
    line += f", {counted(archive['recent'], 'batch', 'batches')} not compacted"
    if archive["erasing"]:
        line += f", {counted(archive['erasing'], 'erasure')} not carried out in all files"
    rows = [
        (node, local_time(one["since"]), local_time(one["time"]), f"{one['offset']:,}")
        for node, one in archive["nodes"].items()
    ]
    return [line, "", table(("node", "complete since", "up to", "offset"), rows), ""] if rows else [line]


def _partitioning_lines(status: dict[str, Any]) -> list[str]:
    """Each shard, and with DRt-Cluster the categories on it; --json shows these one by one."""
    line = f"partitioner: {status['partitioner']}, imbalance {status['imbalance']:.2f}"
    line += f", {counted(status['moved'], 'subscription')} moved"
    shards, categories = status["shards"], status.get("categories")  # those with the most load
    head = ["shard", "subscriptions", "messages", "checks", "matches"]
    rows = [[str(shard["worker"]), *(f"{shard[name]:,}" for name in head[1:])] for shard in shards]
    if categories is not None:
        line += f"; {counted(status['category_count'], 'category', 'categories')}, {counted(status['merges'], 'merge')}"
        head += ["categories", "largest", "load"]
        for row, shard in zip(rows, shards, strict=True):
            mine = [one for one in categories if one["worker"] == shard["worker"]]
            largest = max((one["size"] for one in mine), default=0)
            row += [f"{count:,}" for count in (len(mine), largest, sum(one["load"] for one in mine))]
    return [line, "", table(head, rows), ""]


def _entity_text(entity: dict[str, Any]) -> str:
    lines = [f"{entity['kind']} {entity['id']}"]
    if entity["kind"] == "gateway":
        return "\n".join([*lines, *attribute_lines(entity["attributes"]), f"sources: {entity['sources']:,}"])
    position = entity["position"]
    if position is None:
        lines.append("position: unknown")
    else:
        lines.append(f"position: {position['x']:.10g}, {position['y']:.10g}, since {local_time(position['time'])}")
    lines += attribute_lines(entity["attributes"])
    if entity["gateway"] is not None:
        lines.append(f"gateway: {entity['gateway']}")
    label = "bound subscriptions" if entity["kind"] == "source" else "subscriptions"
    shown = entity["subscriptions"][:_MAX_SHOWN]
    more = entity["count"] - len(shown)
    lines.append(f"{label}: {', '.join(shown) or 'none'}" + (f", and {more:,} more" if more else ""))
    return "\n".join(lines)


def _source_table(sources: list[dict[str, Any]]) -> str:
    rows = []
    for one in sources:
        position = one["position"]
        point = "unknown" if position is None else f"{position['x']:.10g}, {position['y']:.10g}"
        rows.append((one["id"], point, _HOLDS[one["demanded"]], ", ".join(attribute_lines(one["attributes"]))))
    return table(("id", "position", "demanded", "attributes"), rows)


def _subscription_table(subscriptions: list[Subscription], *, with_subscriber: bool) -> str:
    rows = []
    for one in subscriptions:
        names = (one.id, one.subscriber) if with_subscriber else (one.id,)
        sources = ", ".join(one.sources) or _matched_events(one)
        rows.append((*names, one.state, sources, local_time(one.since), one.why or ""))
    head = ("id", *(["subscriber"] if with_subscriber else []), "state", "source", "since", "why not")
    return table(head, rows)


def _matched_events(subscription: Subscription) -> str:
    """What a subscription without bound sources receives."""
    from roamcast.lacl import parse
    from roamcast.lacl.printing import number_text
    from roamcast.lacl.syntax import RangLoc

    if subscription.plan == "bind":
        return "-"
    region = parse(subscription.lacl).location
    if isinstance(region, RangLoc):
        return f"every event within {number_text(region.radius)} m of {subscription.subscriber}"
    return "every event"


def _history_table(history: list[Binding]) -> str:
    if not history:
        return "no bindings yet"
    rows = [(one.source, local_time(one.bound_at), local_time(one.unbound_at) or "now") for one in history]
    return table(("source", "from", "to"), rows)


def _read_event(text: str) -> dict[str, Any]:
    if text == "-":
        text = sys.stdin.read()
    elif not text.lstrip().startswith("{"):
        path = Path(text)
        with storage_errors(path):
            if not path.is_file():
                raise InputError("no such file", where=text, hint="pass an event as JSON, or a file that contains one")
            text = path.read_text()
    try:
        event = json.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where="event", hint=_EVENT_HINT) from error
    if not isinstance(event, dict):
        raise InputError("not a JSON object", where="event", hint=_EVENT_HINT)
    return event


lacl = typer.Typer(no_args_is_help=True, help="Check and explain subscriptions written in LACL.")

QueryFile = Annotated[str | None, typer.Argument(metavar="FILE|-", help="A file with one query; - is standard input.")]
QueryText = Annotated[str | None, typer.Option("-e", "--text", help="The query itself, instead of a file.")]
PlacesFile = Annotated[Path | None, typer.Option("--places", help="GeoJSON file of places, to check their names.")]
SpaceOption = Annotated[SpaceName, typer.Option("--space", help="'geographic': degrees; 'planar': metres.")]


@lacl.command()
def check(
    file: QueryFile = None,
    text: QueryText = None,
    places: PlacesFile = None,
    space: SpaceOption = SpaceName.geographic,
    as_json: Json = False,
) -> None:
    """Print the canonical form of a query. An error shows line, column and what was expected.

    Example: roamcast lacl check -e 'Select Where &context=noise and &location in nearest'
    """
    from roamcast.lacl import to_text

    canonical = to_text(_read_query(file, text, places, space))
    print_result({"lacl": canonical}, canonical, as_json=as_json)


@lacl.command()
def explain(
    file: QueryFile = None,
    text: QueryText = None,
    places: PlacesFile = None,
    space: SpaceOption = SpaceName.geographic,
    as_json: AlwaysJson = True,
) -> None:
    """Print the parts of a query and its plan as JSON.

    Example: roamcast lacl explain query.lacl --places rooms.geojson --space planar
    """
    from roamcast.lacl import explain

    print_json(explain(_read_query(file, text, places, space)))


def _read_query(file: str | None, text: str | None, places: Path | None, space: SpaceName) -> Query:
    from roamcast.coordinates import COORDINATES
    from roamcast.lacl import check, parse

    if (file is None) == (text is None):
        raise InputError("exactly one query is required", hint="pass FILE, - for stdin, or -e TEXT")
    query = parse(_read_query_text(file) if text is None else text)
    if places is None:
        return check(query, space=COORDINATES[space])
    require("node")
    from roamcast.places import Places
    from roamcast.space import SPACES

    return check(query, places=Places.from_geojson(places, SPACES[space]), space=SPACES[space])


def _read_query_text(file: str | None) -> str:
    """Reads slightly more than the parser accepts, so that the parser reports what is too long."""
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
        raise InputError(f"cannot read: {error.strerror}", where=where, hint="check the path") from error
    except UnicodeDecodeError as error:
        hint = f"byte {error.start + 1} is invalid; save the file as UTF-8"
        raise InputError("not UTF-8", where=where, hint=hint) from error
