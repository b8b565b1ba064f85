"""Adding the rows of a file, in requests with a result for each row: subscriptions, or sources of a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from roamcast.cli.output import Progress, counted, print_result
from roamcast.cli.row_files import PORTION, located
from roamcast.errors import InputError, RoamcastError

if TYPE_CHECKING:
    import pyarrow as pa

    from roamcast.client import SourceResult, SubscriptionResult

__all__ = ["RowPortion", "add_rows", "json_portions"]


class RowPortion(NamedTuple):
    """Some rows, JSON values or a table, and their numbers in the file, from 1."""

    numbers: Sequence[int]
    rows: list[Any] | pa.Table


def json_portions(rows: Iterable[tuple[int, bytes | InputError]]) -> Iterator[RowPortion]:
    """Numbered rows of JSON, in requests. One that is not JSON is a text, which the node refuses; errors stay."""
    remaining = iter(rows)
    while portion := list(islice(remaining, PORTION)):
        yield RowPortion([number for number, _ in portion], [_json_or_text(row) for _, row in portion])


def add_rows(
    file: str,
    noun: str,
    portions: Iterable[RowPortion],
    add: Callable[[RowPortion], Sequence[SubscriptionResult | SourceResult]],
    *,
    row_hint: str,
    as_json: bool,
) -> None:
    """Add all portions, report refused rows, and print how many were added. Exits with 1 if some were refused.

    `noun` is what a row is, `row_hint` what it has.
    """
    added = existing = refused = 0
    with Progress(f"adding {file}") as progress:
        try:
            for portion in portions:
                for number, result in zip(portion.numbers, add(portion), strict=True):
                    if result.error is not None:
                        refused += 1
                        typer.echo(f"refused {located(result.error, file, number, row_hint)}", err=True)
                    elif result.changed:
                        added += 1
                    else:
                        existing += 1
                progress.say(f"adding {file}: {added + existing + refused:,} done")
        except RoamcastError:
            if added:
                typer.echo(f"{counted(added, noun)} of {file} were added before this error:", err=True)
            raise
    text = f"added {counted(added, noun)}; {existing:,} existed already, {refused:,} were refused"
    print_result({"added": added, "existing": existing, "refused": refused}, text, as_json=as_json)
    if refused:
        raise typer.Exit(1)


def _json_or_text(row: bytes | InputError) -> Any:
    if isinstance(row, InputError):
        return row
    try:
        return json.loads(row)
    except ValueError:
        return row.decode(errors="replace")
