"""`roamcast publish`"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

from roamcast.cli.credentials import connect
from roamcast.cli.options import DEFAULT_URL, Url
from roamcast.cli.progress import Progress
from roamcast.client import Client
from roamcast.client.flow import json_body
from roamcast.durable import storage_errors
from roamcast.errors import InputError, PermissionDeniedError, RoamcastError

if TYPE_CHECKING:
    from roamcast.node.schemas import EventIn
    from roamcast.space import Space

__all__ = ["OnError", "publish"]

# What is sent at once: fewer rows and bytes than a node takes, unless its limits were lowered.
_PORTION = 1_000
_PORTION_BYTES = 4 * 1024 * 1024


class OnError(StrEnum):
    fail = "fail"
    skip = "skip"


def publish(
    source: Annotated[str, typer.Option(help="Id of the source; registered when first used.")],
    file: Annotated[
        str | None, typer.Argument(metavar="FILE|-", help="Events as NDJSON, one JSON object a line; - is stdin.")
    ] = None,
    x: Annotated[
        float | None, typer.Option(help="Where: x, or longitude.", show_default="the source's position")
    ] = None,
    y: Annotated[float | None, typer.Option(help="Where: y, or latitude.")] = None,
    term: Annotated[list[str] | None, typer.Option(help="A term of the event; may be repeated.")] = None,
    reading: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A reading of the event; may be repeated.")
    ] = None,
    on_error: Annotated[OnError, typer.Option(help="What a bad row of the file does.")] = OnError.fail,
    url: Url = DEFAULT_URL,
) -> None:
    """Publish one event, or a file of them. With --on-error fail a file with a bad row is not published at all.

    Rows from stdin are published as they come, a portion at a time: those in portions before a bad row are published.
    So are those of a file at a node whose limits are lower than the usual ones, which only the node itself can check.

    Example: roamcast publish --source door-7 --x 13.4 --y 52.5 --term fire --reading celsius=71.5

    Example: roamcast publish --source door-7 events.ndjson
    """
    if file is not None and (term or reading):
        raise InputError(
            "--term and --reading are for one event, not for a file", hint="put them into the rows, or leave FILE out"
        )
    with connect(url, "source", source, x, y) as client:
        if file is None:
            event = {"x": x, "y": y, "terms": term or [], "readings": dict(map(_reading, reading or ()))}
            accepted = client.publish({name: value for name, value in event.items() if value is not None})
            typer.echo(f"published event {accepted.last_seq} of {source}")
        else:
            with Progress(f"publishing {file}"):
                count = _publish_file(client, file, skip=on_error is OnError.skip)
            typer.echo(f"published {count} events of {source}")


def _reading(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise InputError(f"{text!r} is not NAME=VALUE", where="--reading", hint="such as celsius=21.5") from None


class _Row(NamedTuple):
    number: int
    event: dict[str, Any]


def _publish_file(client: Client, file: str, *, skip: bool) -> int:
    from roamcast.space import SPACES

    space = SPACES[client.health()["space"]]
    me = client.me()
    if file != "-" and not skip:
        with _opened(file) as lines:
            for _ in _checked(lines, file, space, me, skip=False):
                pass
    with _opened(file) as lines:
        portions = _portions(_checked(lines, file, space, me, skip=skip))
        return sum(_publish_portion(client, portion, file, skip=skip) for portion in portions)


def _portions(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    portion: list[_Row] = []
    size = 0
    for row in rows:
        portion.append(row)
        size += len(json_body(row.event))
        if len(portion) >= _PORTION or size >= _PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _checked(lines: Iterable[bytes], file: str, space: Space, me: Mapping[str, Any], *, skip: bool) -> Iterator[_Row]:
    """The rows that are good as far as one can tell from here; a bad one is raised, or told of and left out."""
    from pydantic import ValidationError

    from roamcast.node.schemas import EventIn, input_error_of

    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            try:
                event = EventIn.model_validate_json(line)
            except ValidationError as error:
                raise input_error_of(error, "") from None
            _check(event, space, me)
        except InputError as error:
            _tell(error, file, number, skip=skip)
        else:
            yield _Row(number, json.loads(line))


def _check(event: EventIn, space: Space, me: Mapping[str, Any]) -> None:
    """What the node would ask of an event of the source `me`."""
    from roamcast.node.clock import check_time
    from roamcast.settings import NodeLimits

    if event.time is not None:
        check_time(event.time, time.time_ns() // 1000, NodeLimits().ahead, "time")
    if event.source not in (None, me["id"]):
        raise InputError(f"the event is not of {me['id']}", where="source", hint="publish it with --source of its own")
    if event.x is not None and event.y is not None:
        space.check_point(event.x, event.y)
    elif me["position"] is None:
        raise InputError("the event has no point, and its source no position", where="x", hint="give x and y")


def _publish_portion(client: Client, rows: list[_Row], file: str, *, skip: bool) -> int:
    """Publish the rows together; the node may still find one to be bad."""
    while rows:
        try:
            return client.publish([row.event for row in rows]).accepted
        except (InputError, PermissionDeniedError) as error:
            found = re.match(r"events\[(\d+)\]\.?(.*)", error.where or "")
            if not found:
                raise
            bad = int(found[1])
            _tell(
                type(error)(error.message, where=found[2] or None, hint=error.hint), file, rows[bad].number, skip=skip
            )
            del rows[bad]
    return 0


def _tell(error: RoamcastError, file: str, number: int, *, skip: bool) -> None:
    where = f"{file}: row {number}" + (f": {error.where}" if error.where else "")
    named = type(error)(error.message, where=where, hint=error.hint)
    if not skip:
        raise named
    typer.echo(f"skipped {named}", err=True)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """As bytes: a row that is no UTF-8 is a bad row, not a bad file."""
    if file == "-":
        yield sys.stdin.buffer
        return
    path = Path(file)
    if not path.is_file():
        raise InputError("there is no such file", where=file, hint="give the path of an NDJSON file, or - for stdin")
    with storage_errors(path), path.open("rb") as lines:
        yield lines
