"""`roamcast publish`: one event from options, or a file of events."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from roamcast.cli.options import Json, OnError, Register, Url
from roamcast.cli.output import Progress, counted, print_result
from roamcast.cli.table_files import event_lines, is_table
from roamcast.cli.tokens import anonymous_client, entity_client, register_entity, registered_client
from roamcast.durable import storage_errors
from roamcast.errors import InputError, PermissionDeniedError, RoamcastError

if TYPE_CHECKING:
    from roamcast.client import Client, PublishReceipt
    from roamcast.coordinates import CoordinateLimits

__all__ = ["publish"]

# Size of one request: below the default limits of a node.
_CHUNK_ROWS: Final = 1_000
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_ROW_HINT: Final = "a line or row has any of time, x, y, terms, readings, id and seq"


def publish(
    source: Annotated[str, typer.Option(help="Id of the source.")],
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|-",
            help="Events: NDJSON, one object per line; or a row for each in Arrow (.arrow, .arrows, .feather) or "
            "Parquet (.parquet, .pq). - is NDJSON from stdin.",
        ),
    ] = None,
    x: Annotated[
        float | None, typer.Option(help="Position: x, or longitude.", show_default="the source's position")
    ] = None,
    y: Annotated[float | None, typer.Option(help="Position: y, or latitude.")] = None,
    term: Annotated[list[str] | None, typer.Option(help="A term of the event; repeatable.")] = None,
    reading: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A reading of the event; repeatable.")
    ] = None,
    on_error: Annotated[OnError, typer.Option(help="What to do with invalid rows of the file.")] = OnError.fail,
    register: Register = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Publish one event, or a file of events. By default nothing is published if a row of the file is invalid.

    Rows from stdin are published in chunks as they arrive, so those before an invalid row may be published already. The
    same applies to a file if the limits of the node are lower than the defaults: only the node can check them. With
    --register, the source is registered once an event is valid.

    Example: roamcast publish --source door-7 --x 13.4 --y 52.5 --term fire --reading celsius=71.5

    Example: roamcast publish --source door-7 events.ndjson

    Example: roamcast publish --source door-7 events.parquet
    """
    from roamcast.client.flow import json_body
    from roamcast.coordinates import COORDINATES

    if file is not None and (term or reading):
        hint = "put them into the rows of the file, or omit FILE"
        raise InputError("--term and --reading cannot be combined with FILE", hint=hint)
    readings = dict(map(_parse_reading, reading or ()))
    known = registered_client(url, "source", source) if register else entity_client(url, source)
    has_position = (known.me()["position"] if known else x) is not None
    space = COORDINATES[(known or anonymous_client(url)).health()["space"]]
    check = _EventCheck(source, has_position, space)

    def connect() -> Client:
        return known or register_entity(url, "source", source, {}, x, y)

    if file is None:
        options = {"x": x, "y": y, "terms": term or [], "readings": readings}
        event = check.parse(json_body({name: value for name, value in options.items() if value is not None}))
        with connect() as client:
            receipts = [client.publish(event)]
    else:
        with Progress(f"publishing {file}"):
            receipts = _publish_file(connect, check, file, skip=on_error is OnError.skip)
    count = sum(receipt.accepted for receipt in receipts)
    first = min((receipt.first_seq for receipt in receipts), default=None)
    last = max((receipt.last_seq for receipt in receipts), default=None)
    what = f"event {last}" if file is None else counted(count, "event")
    result = {"source": source, "accepted": count, "first_seq": first, "last_seq": last}
    print_result(result, f"published {what} of {source}", as_json=as_json)


def _parse_reading(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        reason = f"{value!r} is not a number" if separator else f"{text!r} is not NAME=VALUE"
        raise InputError(reason, where="--reading", hint="for example celsius=21.5") from None


class _EventRow(NamedTuple):
    number: int
    event: dict[str, Any]


class _EventCheck(NamedTuple):
    """Checks what the node would check of the events of a source, except for the node's own limits."""

    source: str
    has_position: bool
    space: CoordinateLimits

    def parse(self, line: bytes) -> dict[str, Any]:
        """The event in a line of JSON. Raises InputError."""
        from pydantic import ValidationError

        from roamcast.node.clock import check_time
        from roamcast.node.schemas import EventIn
        from roamcast.node.validation_errors import input_error_of
        from roamcast.settings_model import NodeLimits

        try:
            event = EventIn.model_validate_json(line)
        except ValidationError as error:
            raise input_error_of(error, "", model=EventIn) from None
        if event.time is not None:
            check_time(event.time, time.time_ns() // 1000, NodeLimits().ahead, "time")
        if event.source not in (None, self.source):
            hint = "publish it in a separate command, with its own --source"
            raise InputError(f"the event is not from source {self.source}", where="source", hint=hint)
        if event.x is not None and event.y is not None:
            self.space.check_point(event.x, event.y)
        elif not self.has_position:
            hint = "add x and y, or report the position of the source first"
            raise InputError("neither the event nor its source has a position", where="x", hint=hint)
        return dict(json.loads(line))


def _publish_file(connect: Callable[[], Client], check: _EventCheck, file: str, *, skip: bool) -> list[PublishReceipt]:
    """Publish the rows of a file. `connect` is called when there is a valid one."""
    if file != "-" and not skip:
        with _open(file) as lines:
            for _ in _valid_rows(lines, file, check, skip=False):
                pass
    with _open(file) as lines:
        chunks = _chunks(_valid_rows(lines, file, check, skip=skip))
        if (first := next(chunks, None)) is None:
            return []
        with connect() as client:
            receipts = [_publish_chunk(client, chunk, file, skip=skip) for chunk in chain([first], chunks)]
        return [receipt for receipt in receipts if receipt is not None]


def _chunks(rows: Iterable[_EventRow]) -> Iterator[list[_EventRow]]:
    from roamcast.client.flow import json_body

    chunk: list[_EventRow] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(json_body(row.event))
        if len(chunk) >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _valid_rows(lines: Iterable[bytes], file: str, check: _EventCheck, *, skip: bool) -> Iterator[_EventRow]:
    """The rows that are valid as far as can be checked here. Others raise InputError, or are reported and skipped."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            event = check.parse(line)
        except InputError as error:
            _reject(error, file, number, skip=skip)
        else:
            yield _EventRow(number, event)


def _publish_chunk(client: Client, rows: list[_EventRow], file: str, *, skip: bool) -> PublishReceipt | None:
    """Publish rows in one request, without those that the node rejects."""
    while rows:
        try:
            return client.publish([row.event for row in rows])
        except (InputError, PermissionDeniedError) as error:
            position = re.match(r"events\[(\d+)\]\.?(.*)", error.where or "")
            if not position:
                raise
            index = int(position[1])
            cause = type(error)(error.message, where=position[2] or None, hint=error.hint)
            _reject(cause, file, rows[index].number, skip=skip)
            del rows[index]
    return None


def _reject(error: RoamcastError, file: str, number: int, *, skip: bool) -> None:
    field = "" if error.where in (None, "body") else f": {error.where}"
    row = f"{'row' if is_table(file) else 'line'} {number}"
    where = f"{'standard input' if file == '-' else file}, {row}{field}"
    hint = _ROW_HINT if (error.hint or "").startswith(("see /docs", "send JSON")) else error.hint
    located = type(error)(error.message, where=where, hint=hint)
    if not skip:
        raise located
    typer.echo(f"skipped {located}", err=True)


@contextmanager
def _open(file: str) -> Iterator[Iterable[bytes]]:
    """The rows as JSON. Binary: a row that is not UTF-8 is an invalid row, not an invalid file."""
    if file == "-":
        yield sys.stdin.buffer
        return
    path = Path(file)
    if not path.is_file():
        raise InputError("no such file", where=file, hint="pass the path of a file, or - for stdin")
    with storage_errors(path), path.open("rb") as content:
        yield event_lines(file, content) if is_table(file) else content
