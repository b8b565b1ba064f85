"""Commands of subscribers: subscribe, pull letters, send letters."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roamcast.cli.options import AlwaysJson, Json, OnError, Register, Url
from roamcast.cli.output import print_result
from roamcast.cli.subscription_files import subscribe_file, unsubscribe_file
from roamcast.cli.tokens import anonymous_client, entity_client, register_entity, registered_client
from roamcast.errors import InputError
from roamcast.lacl.vocabulary import TIME_UNITS

if TYPE_CHECKING:
    from roamcast.client import Client, Letter

__all__ = ["pull", "read_text", "send", "subscribe", "unsubscribe"]

BoxOption = tuple[float, float, float, float]

_PAGE: Final = 500  # letters


def subscribe(
    subscriber: Annotated[str, typer.Option(help="Id of the subscriber, or full name of a visitor.")],
    lacl: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="LACL query, or @ and a file that contains it.")
    ] = None,
    box: Annotated[
        BoxOption | None, typer.Option(metavar="MIN_X MIN_Y MAX_X MAX_Y", help="Only events inside this box.")
    ] = None,
    crosses_antimeridian: Annotated[
        bool,
        typer.Option("--crosses-antimeridian", help="The box crosses the antimeridian: MIN_X is greater than MAX_X."),
    ] = False,
    term: Annotated[list[str] | None, typer.Option(help="Only events with this term; repeatable.")] = None,
    id: Annotated[str | None, typer.Option(help="Id of the subscription.", show_default="random")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Begin with the letters of such a time before, as '1 h', from the archive."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Give the subscription --id this query instead.")] = False,
    file: Annotated[
        str | None,
        typer.Option(metavar="FILE|-", help="Many subscriptions: .arrow, .parquet, or lines of NDJSON; - is stdin."),
    ] = None,
    on_error: Annotated[OnError, typer.Option(help="What to do with invalid rows of the file.")] = OnError.fail,
    register: Register = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Subscribe with a LACL query, or by box and terms (an event must have all of them). Prints the id.

    With --file, each row is a subscription as in the HTTP API. Give each an id to be able to change it later. By
    default nothing is added if a row is invalid. The command can be repeated: nothing is added twice.

    Example: roamcast subscribe --subscriber anna --box -0.5 51.3 0.3 51.7 --term fire

    Example: roamcast subscribe --subscriber anna --lacl 'Select Where &context = noise and &location in nearest'

    Example: roamcast subscribe --subscriber anna --term fire --since '1 h'

    Example: roamcast subscribe --subscriber anna --file subscriptions.ndjson
    """
    if file is not None:
        if lacl is not None or box is not None or term or crosses_antimeridian or id is not None or replace or since:
            raise InputError("--file cannot be combined with a single subscription", hint="put it into the file")
        with _connect(url, subscriber, register) as client:
            subscribe_file(client, file, skip=on_error is OnError.skip, as_json=as_json)
        return
    if replace and id is None:
        raise InputError("--replace needs --id", where="--replace", hint="add --id of the subscription to change")
    if lacl is None and box is None and not term:
        raise InputError("nothing to subscribe to", hint="pass --lacl, --box, --term or --file")
    if lacl is not None and (box is not None or term):
        raise InputError(
            "--lacl cannot be combined with --box or --term", hint="put the box and the terms into the query"
        )
    if crosses_antimeridian and box is None:
        hint = "add --box MIN_X MIN_Y MAX_X MAX_Y"
        raise InputError("--crosses-antimeridian needs --box", where="--crosses-antimeridian", hint=hint)
    if replace and since is not None:
        raise InputError("--since is for a new subscription", where="--since", hint="omit --since, or --replace")
    seconds = None if since is None else _seconds(since)
    text = read_text(lacl[1:]) if lacl is not None and lacl.startswith("@") else lacl
    if register:
        _check(url, text, box, crosses_antimeridian)
    terms, crosses = term or (), crosses_antimeridian
    with _connect(url, subscriber, register) as client:
        if replace and id is not None:
            client.replace(id, text, box=box, crosses_antimeridian=crosses, terms=terms)
            subscription = id
        else:
            subscription = client.subscribe(
                text, box=box, crosses_antimeridian=crosses, terms=terms, id=id, since=seconds
            )
    print_result({"id": subscription}, subscription, as_json=as_json)


def _seconds(period: str) -> float:
    """A period such as `1 h` or `90 min`. Raises InputError."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*", period)
    if match is None or match[2] not in TIME_UNITS or float(match[1]) == 0:
        raise InputError(
            f"not a time: {period!r}", where="--since", hint=f"such as '1 h'; units: {', '.join(TIME_UNITS)}"
        )
    return float(match[1]) * TIME_UNITS[match[2]] / 1e6


def unsubscribe(
    subscriber: Annotated[str, typer.Option(help="Id of the subscriber, or full name of a visitor.")],
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Id of the subscription.")] = None,
    file: Annotated[str | None, typer.Option(metavar="FILE|-", help="Many ids, one in each line; - is stdin.")] = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Remove a subscription, or many. Letters already in the mailbox stay there.

    Example: roamcast unsubscribe --subscriber anna 71f29e6e24204acca0956de0fd253240

    Example: roamcast unsubscribe --subscriber anna --file ids.txt
    """
    if (id is None) == (file is None):
        raise InputError("nothing to remove, or too much", hint="pass the id of a subscription, or --file with ids")
    with entity_client(url, subscriber) as client:
        if file is not None:
            unsubscribe_file(client, file, as_json=as_json)
        elif id is not None:
            client.unsubscribe(id)
            print_result({"id": id}, f"removed subscription {id}", as_json=as_json)


def pull(
    subscriber: Annotated[str, typer.Option(help="Id of the subscriber, or full name of a visitor.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of letters.", show_default="all")] = None,
    wait: Annotated[float, typer.Option(min=0, max=30, help="Seconds to wait for the first letter.")] = 0.0,
    follow: Annotated[bool, typer.Option("--follow", help="Keep printing letters as they arrive.")] = False,
    no_ack: Annotated[bool, typer.Option("--no-ack", help="Leave the letters in the mailbox.")] = False,
    as_json: AlwaysJson = True,
    url: Url = None,
) -> None:
    """Print the letters of a mailbox, one JSON object per line, and acknowledge them once they are printed.

    Example: roamcast pull --subscriber anna --wait 10
    """
    with entity_client(url, subscriber) as client:
        pages = ([letter] for letter in client.letters(ack=False)) if follow else _pages(client, wait)
        remaining, printed = limit, 0
        for page in pages:
            letters = page[:remaining]
            for letter in letters:
                typer.echo(json.dumps(_letter_fields(letter), ensure_ascii=False))
            sys.stdout.flush()  # a letter that could not be printed is not acknowledged
            if not no_ack:
                client.acknowledge(letters[-1])
            printed += len(letters)
            remaining = None if remaining is None else remaining - len(letters)
            if remaining == 0:
                return
        if not printed:
            typer.echo("no letters", err=True)


def send(
    to: Annotated[str, typer.Argument(metavar="NAME", help="Receiver: [system.]domain.host.id, or an id of the node.")],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Text, or a JSON value with --json-message.")],
    subscriber: Annotated[str, typer.Option(help="Sender: id, or full name of a visitor.")],
    title: Annotated[str, typer.Option(help="Title of the letter.")] = "",
    ttl: Annotated[
        float | None, typer.Option(min=0, help="Seconds until the letter expires if it is not read.")
    ] = None,
    number: Annotated[
        int | None, typer.Option(min=1, help="Number of the letter. Repeat it to retry: the letter arrives once.")
    ] = None,
    json_message: Annotated[bool, typer.Option("--json-message", help="MESSAGE is a JSON value.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Send a letter to another subscriber, wherever it is.

    Example: roamcast send south.node.ben "See you at the pier" --subscriber ann
    """
    try:
        value = json.loads(message) if json_message else message
    except ValueError as error:
        hint = "omit --json-message to send text"
        raise InputError(f"not JSON: {error}", where="message", hint=hint) from None
    with entity_client(url, subscriber) as client:
        receipt = client.send(to, value, title=title, ttl=ttl, number=number)
    print_result(asdict(receipt), f"sent letter {receipt.number} to {receipt.receiver}", as_json=as_json)


def _connect(url: str | None, subscriber: str, register: bool) -> Client:
    known = registered_client(url, "subscriber", subscriber) if register else entity_client(url, subscriber)
    return known or register_entity(url, "subscriber", subscriber, {})


def _check(url: str | None, text: str | None, box: BoxOption | None, crosses_antimeridian: bool) -> None:
    """Refuse what the node would refuse, before anything is registered. Place names cannot be checked here."""
    from roamcast.coordinates import COORDINATES
    from roamcast.lacl import check, parse
    from roamcast.model import Box

    with anonymous_client(url) as client:
        space = COORDINATES.get(str(client.health().get("space")))
    if text is not None:
        check(parse(text), space=space)
    elif box is not None and space is not None:
        space.check_box(Box(*box), crosses_antimeridian=crosses_antimeridian)


def read_text(file: str) -> str:
    """The content of a file that an option names after `@`. Raises InputError."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(
            f"cannot read: {reason}", where=file, hint="@ must be followed by the path of a UTF-8 text file"
        ) from error


def _letter_fields(letter: Letter) -> dict[str, object]:
    """The fields that the API returns: those of an event, or those of a message."""
    others = ("title", "message") if letter.title is None else ("subscription", "event", "why")
    return {name: value for name, value in asdict(letter).items() if name not in others}


def _pages(client: Client, seconds: float) -> Iterator[list[Letter]]:
    """The letters in the mailbox. If there are none, wait up to `seconds` for the first."""
    letters = client.pull(limit=_PAGE, wait=seconds)
    while letters:
        yield letters
        letters = client.pull(limit=_PAGE, after=letters[-1].offset)
