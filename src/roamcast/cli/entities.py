"""Commands for sources, subscribers and gateways: register, move, attributes, tokens."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from roamcast.cli.attributes import attribute_lines, parse_attributes
from roamcast.cli.options import Data, Entity, EntityOrVisitor, Gateway, Json, OnError, OperatorTokenFile, Url
from roamcast.cli.output import local_time, print_result
from roamcast.cli.source_files import register_file
from roamcast.cli.tokens import (
    entity_client,
    node_url,
    operator_or_entity_client,
    register_entity,
    stored_tokens,
)
from roamcast.errors import ConflictError, InputError

__all__ = ["forget_position", "move", "register", "renew_token", "set_attributes", "unregister"]

AttributeOption = typer.Option(
    "--attribute", metavar="NAME=VALUE", help="An attribute: a number, true, false, or a string; repeatable."
)

_CONSEQUENCES: Final = {
    "source": "Its bindings end.",
    "subscriber": "Its subscriptions and its mailbox are deleted, and its id cannot be used again.",
    "gateway": "Its sources are removed with it.",
}


class Role(StrEnum):
    """Kinds of entities."""

    source = "source"
    subscriber = "subscriber"
    gateway = "gateway"


def register(
    kind: Annotated[Role, typer.Argument(help="Kind of entity.", metavar="source|subscriber|gateway")],
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Id of the entity.")] = None,
    attribute: Annotated[list[str] | None, AttributeOption] = None,
    x: Annotated[float | None, typer.Option(help="Position: x, or longitude.")] = None,
    y: Annotated[float | None, typer.Option(help="Position: y, or latitude.")] = None,
    gateway: Gateway = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="Many sources of a gateway: .csv, .arrow, .parquet, or NDJSON; - is NDJSON from stdin.",
        ),
    ] = None,
    on_error: Annotated[OnError, typer.Option(help="What to do with invalid rows of the file.")] = OnError.fail,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Register a source, a subscriber or a gateway, and store its token for other commands.

    A gateway acts for its sources, which have no tokens of their own: register them with --gateway. With --file, each
    row is a source: id, and perhaps x, y and attributes, which in CSV are all other columns. By default nothing is
    registered if a row is invalid. The command can be repeated: sources that the gateway has already stay as they are.

    Example: roamcast register source mic-1 --attribute context=noise --attribute floor=2 --x 8.5 --y 53.5

    Example: roamcast register source meter-1 --gateway hub

    Example: roamcast register source --gateway hub --file meters.ndjson
    """
    attributes = parse_attributes(attribute or ())
    if file is not None:
        if id is not None or attributes or x is not None or y is not None:
            raise InputError("--file cannot be combined with a single source", hint="put it into the file")
        if kind is not Role.source or gateway is None:
            hint = "roamcast register source --gateway ID --file FILE"
            raise InputError("only sources of a gateway can be registered from a file", where="--file", hint=hint)
        with entity_client(url, gateway) as client:
            register_file(client, file, skip=on_error is OnError.skip, as_json=as_json)
        return
    if id is None:
        raise InputError("nothing to register", where="ID", hint="pass the id, or --gateway and --file for many")
    if kind is Role.gateway and (x is not None or y is not None):
        raise InputError("a gateway has no position", where="--x", hint="give positions to its sources")
    if gateway is None:
        register_entity(url, kind.value, id, attributes, x, y).close()
        print_result({"kind": kind.value, "id": id}, f"registered {kind.value} {id}", as_json=as_json)
        return
    if kind is not Role.source:
        raise InputError(f"a {kind.value} belongs to no gateway", where="--gateway", hint="omit it")
    fields = {"id": id, "attributes": attributes, "x": x, "y": y}
    with entity_client(url, gateway) as client:
        sources = [{name: value for name, value in fields.items() if value is not None}]
        (registered,) = client.register_sources(sources, all_or_none=True)
    text = f"registered source {id} of gateway {gateway}"
    if not registered.changed:
        text = f"gateway {gateway} has source {id} already; nothing is changed"
    print_result({"kind": "source", "id": id, "gateway": gateway}, text, as_json=as_json)


def unregister(
    entity: Entity,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    gateway: Gateway = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Remove a source, a subscriber or a gateway permanently, and delete its token. A gateway's sources go with it.

    Example: roamcast unregister mic-1

    Example: roamcast unregister meter-1 --gateway hub
    """
    if not yes and not _has_terminal():
        raise InputError("confirmation needs a terminal", hint="pass --yes to do without")
    with entity_client(url, gateway or entity) as client:
        kind = "source" if gateway else client.me()["kind"]
        if not yes:
            typer.confirm(f"Permanently remove {kind} {entity}? {_CONSEQUENCES[kind]}", abort=True, err=True)
        if gateway:
            client.remove_source(entity)
        else:
            client.unregister(sources=kind == "gateway")
            stored_tokens().remove(node_url(url), entity)
    print_result({"kind": kind, "id": entity}, f"removed {kind} {entity}", as_json=as_json)


def set_attributes(
    entity: EntityOrVisitor,
    attribute: Annotated[list[str], AttributeOption],
    gateway: Gateway = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Replace all attributes of a source, a subscriber or a gateway, and print them.

    Example: roamcast set-attributes mic-1 --attribute context=noise --attribute floor=3
    """
    attributes = parse_attributes(attribute)
    with entity_client(url, gateway or entity) as client:
        changed = client.set_attributes(attributes, source=entity if gateway else None)
    print_result(changed["attributes"], "\n".join(attribute_lines(changed["attributes"])), as_json=as_json)


def move(
    entity: EntityOrVisitor,
    x: Annotated[float, typer.Argument(metavar="X", help="New position: x, or longitude.")],
    y: Annotated[float, typer.Argument(metavar="Y", help="New position: y, or latitude.")],
    gateway: Gateway = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Report the current position of a source or a subscriber.

    Example: roamcast move anna -0.12 51.5

    Example: roamcast move meter-1 8.5 53.5 --gateway hub
    """
    with entity_client(url, gateway or entity) as client:
        moved = client.move(x, y) if gateway is None else not client.move_many([{"entity": entity, "x": x, "y": y}])
        if not moved:
            known = client.me() if gateway is None else client.entity(entity)
            since = local_time(known["position"]["time"])
            raise ConflictError(
                f"not moved: a newer position, from {since}, is known",
                where=entity,
                hint="it was reported by a client whose clock is ahead; try again after that time",
            )
    print_result({"id": entity, "x": x, "y": y}, f"{entity} is at {x:.10g}, {y:.10g}", as_json=as_json)


def forget_position(entity: EntityOrVisitor, gateway: Gateway = None, as_json: Json = False, url: Url = None) -> None:
    """Erase the position and the binding history of a source or a subscriber.

    Example: roamcast forget-position anna
    """
    with entity_client(url, gateway or entity) as client:
        client.forget_position(source=entity if gateway else None)
    print_result({"id": entity}, f"erased the position and binding history of {entity}", as_json=as_json)


def renew_token(
    entity: Entity,
    store: Annotated[bool, typer.Option("--store", help="Store the new token instead of printing it.")] = False,
    operator_token_file: OperatorTokenFile = None,
    data: Data = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Replace the token of a source, a subscriber or a gateway. The old token becomes invalid.

    If its token is stored here, the new one replaces it. Otherwise the operator token is used, and the new token is
    printed, or stored for other commands with --store.

    Example: roamcast renew-token anna
    """
    tokens, node = stored_tokens(), node_url(url)
    is_stored = tokens.get(node, entity) is not None
    with operator_or_entity_client(url, entity if is_stored else None, operator_token_file, data) as client:
        if is_stored or store:
            tokens.put(node, entity, lambda: client.renew_token(entity))
            print_result({"id": entity}, f"renewed and stored the token of {entity}", as_json=as_json)
        else:
            token = client.renew_token(entity)
            print_result({"id": entity, "token": token}, token, as_json=as_json)


def _has_terminal() -> bool:
    return sys.stdin.isatty()
