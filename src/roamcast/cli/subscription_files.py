"""Files of subscriptions, for `roamcast subscribe --file` and `roamcast unsubscribe --file`."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import TYPE_CHECKING, Final

import typer

from roamcast.cli.added_rows import RowPortion, add_rows
from roamcast.cli.output import Progress, counted, print_result
from roamcast.cli.row_files import located, open_file
from roamcast.cli.subscription_rows import check_file, portions
from roamcast.errors import InputError

if TYPE_CHECKING:
    from roamcast.client import Client, SubscriptionResult

__all__ = ["subscribe_file", "unsubscribe_file"]

_CHUNK: Final = 5_000  # ids in a request
_ROW_HINT: Final = "a row has lacl, or box and terms; and perhaps an id"


def subscribe_file(client: Client, file: str, *, skip: bool, as_json: bool) -> None:
    """Add the subscriptions of a file, and print how many. Exits with 1 if some were refused."""
    if file != "-" and not skip:
        _check(client, file)
    key = None if file == "-" else _digest(file)

    def subscribe(portion: RowPortion) -> list[SubscriptionResult]:
        # With this key, repeating the command for the same file adds nothing twice.
        keyed = None if key is None else f"{key}:{portion.numbers[0]}"
        return client.subscribe_many(portion.rows, idempotency_key=keyed)

    add_rows(file, "subscription", portions(file), subscribe, row_hint=_ROW_HINT, as_json=as_json)


def unsubscribe_file(client: Client, file: str, *, as_json: bool) -> None:
    """Remove the subscriptions whose ids are the lines of a file. Exits with 1 if some were refused."""
    removed = refused = 0
    with open_file(file) as lines, Progress(f"removing the subscriptions of {file}") as progress:
        ids = (text for line in lines if (text := line.decode(errors="replace").strip()))
        while chunk := list(islice(ids, _CHUNK)):
            for result in client.unsubscribe_many(chunk):
                if result.error is None:
                    removed += 1
                else:
                    refused += 1
                    typer.echo(f"refused {result.error}", err=True)
            progress.say(f"removing the subscriptions of {file}: {removed + refused:,} done")
    text = f"removed {counted(removed, 'subscription')}; {refused:,} were refused"
    print_result({"removed": removed, "refused": refused}, text, as_json=as_json)
    if refused:
        raise typer.Exit(1)


def _check(client: Client, file: str) -> None:
    """Refuse the file if a line is invalid, as far as can be seen here: nothing is added then."""
    from pydantic import ValidationError

    from roamcast.coordinates import COORDINATES
    from roamcast.lacl import check, parse
    from roamcast.node.schemas import SubscriptionIn
    from roamcast.node.validation_errors import input_error_of

    space = COORDINATES[client.health()["space"]]
    with Progress(f"checking {file}"):
        for number, row in check_file(file):
            try:
                subscription = SubscriptionIn.model_validate_json(row)
                subscription.box_in(space)
                if subscription.lacl is not None:
                    check(parse(subscription.lacl), space=space)
            except ValidationError as error:
                raise located(input_error_of(error, "", model=SubscriptionIn), file, number, _ROW_HINT) from None
            except InputError as error:
                raise located(error, file, number, _ROW_HINT) from None


def _digest(file: str) -> str:
    digest = hashlib.sha256()
    with open_file(file) as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
