"""`roamcast publish`: one event from options, or a file of events; of a source, or of the sources of a gateway."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from roamcast.cli.options import Json, OnError, Register, Url
from roamcast.cli.output import Progress, counted, print_result
from roamcast.cli.row_files import json_rows, located
from roamcast.cli.tokens import anonymous_client, entity_client, register_entity, registered_client
from roamcast.errors import InputError, NotFoundError, PermissionDeniedError, RoamcastError

if TYPE_CHECKING:
    from roamcast.client import Client, PublishReceipt
    from roamcast.coordinates import CoordinateLimits
    from roamcast.node.http.arrow_bodies import ColumnKind

__all__ = ["publish"]

# Size of one request: below the default limits of a node.
_CHUNK_ROWS: Final = 1_000
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_REGISTER_HINT: Final = "register it: roamcast register source ID --gateway ID"
_ROW_HINT: Final = (
    "a line or row has any of time, x, y, terms, readings, id and seq; of a gateway's sources also source"
)


def publish(
    source: Annotated[
        str | None, typer.Option(help="Id of the source.", show_default="the rows name their sources")
    ] = None,
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
    gateway: Annotated[
        str | None, typer.Option(help="Id of the gateway that the sources belong to.", show_default="none")
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

    With --gateway, each row names its source, or --source names that of all.

    Example: roamcast publish --source door-7 --x 13.4 --y 52.5 --term fire --reading celsius=71.5

    Example: roamcast publish --source door-7 events.ndjson

    Example: roamcast publish --source door-7 events.parquet

    Example: roamcast publish --gateway hub readings.ndjson
    """
    if gateway is None and source is None:
        raise InputError("nobody to publish for", hint="pass --source, or --gateway and a file whose rows name sources")
    if gateway is not None and register:
        hint = "roamcast register source ID --gateway ID, or --file for many"
        raise InputError("--register cannot be combined with --gateway", where="--register", hint=hint)
    if file is None and source is None:
        raise InputError("an event needs a source", where="--source", hint="add --source, or pass a file")
    if file is not None and (term or reading):
        hint = "put them into the rows of the file, or omit FILE"
        raise InputError("--term and --reading cannot be combined with FILE", hint=hint)
    readings = dict(map(_parse_reading, reading or ()))
    known = _known_client(url, source, gateway, register=register)
    check = _event_check(url, known, source, gateway, has_position=x is not None)

    def connect() -> Client:
        return known or register_entity(url, "source", str(source), {}, x, y)

    if file is None:
        from roamcast.client.flow import json_body

        options = {"x": x, "y": y, "terms": term or [], "readings": readings}
        event = check.parse(json_body({name: value for name, value in options.items() if value is not None}))
        with connect() as client:
            receipts = [client.publish(event)]
    else:
        with Progress(f"publishing {file}"):
            receipts = _publish_file(connect, check, file, skip=on_error is OnError.skip)
    count = sum(receipt.accepted for receipt in receipts)
    if source is None:
        text = f"published {counted(count, 'event')} of sources of {gateway}"
        print_result({"gateway": gateway, "accepted": count}, text, as_json=as_json)
        return
    first = min((receipt.first_seq for receipt in receipts), default=None)
    last = max((receipt.last_seq for receipt in receipts), default=None)
    what = f"event {last}" if file is None else counted(count, "event")
    result = {"source": source, "accepted": count, "first_seq": first, "last_seq": last}
    print_result(result, f"published {what} of {source}", as_json=as_json)


def _known_client(url: str | None, source: str | None, gateway: str | None, *, register: bool) -> Client | None:
    """The client of the gateway or the source; None if that has to be registered first."""
    if register and source is not None:
        return registered_client(url, "source", source)
    return entity_client(url, str(gateway or source))


def _event_check(
    url: str | None, known: Client | None, source: str | None, gateway: str | None, *, has_position: bool
) -> _EventCheck:
    from roamcast.coordinates import COORDINATES

    space = COORDINATES[(known or anonymous_client(url)).health()["space"]]
    if known is not None and gateway is not None:
        sources = {one["id"]: one["position"] is not None for one in known.sources()}
        if source is not None and source not in sources:
            raise NotFoundError(f"{gateway} has no source {source}", where="--source", hint=_REGISTER_HINT)
        return _EventCheck(source, gateway, sources, space)
    if known is not None:
        me = known.me()
        if me["kind"] == "gateway":
            hint = f"pass --gateway {source}, and the source in each row or with --source"
            raise InputError(f"{source} is a gateway", where="--source", hint=hint)
        has_position = me["position"] is not None
    return _EventCheck(source, None, {str(source): has_position}, space)


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
    """Checks what the node would check of the events, except for the node's own limits.

    `source` is that of events which name none. `sources` says of each that may publish whether it has a position.
    """

    source: str | None
    gateway: str | None
    sources: Mapping[str, bool]
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
        source = self._owner(event.source)
        if event.x is not None and event.y is not None:
            self.space.check_point(event.x, event.y)
        elif not self.sources[source]:
            hint = "add x and y, or report the position of the source first"
            raise InputError("neither the event nor its source has a position", where="x", hint=hint)
        fields = dict(json.loads(line))
        return fields if self.gateway is None else fields | {"source": source}

    def _owner(self, named: str | None) -> str:
        """The source of an event that names this one. Raises InputError if it may not publish here."""
        source = named or self.source
        if source is None:
            raise InputError("the event names no source", where="source", hint="add it, or pass --source")
        if self.source is not None and source != self.source:
            hint = "publish it in a separate command, with its own --source"
            raise InputError(f"the event is not from source {self.source}", where="source", hint=hint)
        if source not in self.sources:
            raise InputError(f"{self.gateway} has no source {source}", where="source", hint=_REGISTER_HINT)
        return source


def _publish_file(connect: Callable[[], Client], check: _EventCheck, file: str, *, skip: bool) -> list[PublishReceipt]:
    """Publish the rows of a file. `connect` is called when there is a valid one."""
    if file != "-" and not skip:
        for _ in _valid_rows(file, check, skip=False):
            pass
    chunks = _chunks(_valid_rows(file, check, skip=skip))
    if (first := next(chunks, None)) is None:
        return []
    receipts: list[PublishReceipt] = []
    last = 0  # the number of the last row that was handled
    with connect() as client:
        try:
            for chunk in chain([first], chunks):
                receipt = _publish_chunk(client, chunk, file, skip=skip)
                receipts += [] if receipt is None else [receipt]
                last = chunk[-1].number
        except RoamcastError:
            if last:
                count = sum(receipt.accepted for receipt in receipts)
                typer.echo(f"{counted(count, 'event')} of {file}, up to row {last:,}, were published before:", err=True)
            raise
    return receipts


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


def _valid_rows(file: str, check: _EventCheck, *, skip: bool) -> Iterator[_EventRow]:
    """The rows that are valid as far as can be checked here. Others raise InputError, or are reported and skipped."""
    for number, line in json_rows(file, _columns):
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
    error = located(error, file, number, _ROW_HINT)
    if not skip:
        raise error
    typer.echo(f"skipped {error}", err=True)


def _columns() -> Mapping[str, ColumnKind]:
    from roamcast.node.http.bulk_bodies import EVENT_COLUMNS

    return EVENT_COLUMNS
