"""`roamcast backtest`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roamcast.cli.moments import parse_moment
from roamcast.cli.options import Data, require
from roamcast.cli.output import Progress, counted
from roamcast.cli.talk import read_text
from roamcast.errors import InputError
from roamcast.model import iso

if TYPE_CHECKING:
    from roamcast.archive.reader import ReadCounts
    from roamcast.backtest.evaluate import Backtest
    from roamcast.backtest.request import Request

__all__ = ["backtest"]


def backtest(
    lacl: Annotated[str, typer.Argument(metavar="LACL|@FILE", help="LACL query, or @ and a file that contains it.")],
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="ISO 8601, or such as '2 h ago'.")],
    to: Annotated[str, typer.Option(metavar="TIME", help="As --from.")] = "now",
    subscriber: Annotated[
        str | None, typer.Option(metavar="ID", help="Who would have subscribed.", show_default="nobody")
    ] = None,
    at: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="X Y", help="Position of somebody who stands still, instead of --subscriber."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(help="Domain of the subscriber, if the archive has several.", show_default="the only one"),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="Folder or storage with the archive.",
            show_default="the pipeline's storage, or the data folder",
        ),
    ] = None,
    data: Data = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the letters to this file.", show_default="standard output"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, too.")] = False,
) -> None:
    """Print the letters that a subscription would have brought: what would I have received?

    One JSON object per line, as `roamcast pull` prints them; a summary on standard error, which says whether they are
    exactly the letters of the stream. Needs an archive (setting `archive`), and access to its folder or storage; no
    node, no pipeline and no Spark.

    Times are those of acceptance: when the node journalled an event. A time without a zone is local.

    Example: roamcast backtest 'Select all() Where &terms has fire' --from '24 h ago'

    Example: roamcast backtest 'Select Where &location in nearest' --subscriber anna --from 2026-03-01 --to 2026-03-02
    """
    require("node")
    from roamcast.archive.reader import open_archive
    from roamcast.backtest.evaluate import backtest as evaluate
    from roamcast.backtest.request import Request, Subscriber
    from roamcast.durable import write_atomic
    from roamcast.failures import wall_time
    from roamcast.settings import node_settings, pipeline_settings

    started = time.monotonic()
    now = wall_time()
    if at is not None and subscriber is not None:
        raise InputError("cannot be combined with --subscriber", where="--at", hint="omit one of them")
    who = Subscriber(subscriber, node=node) if at is None else Subscriber.at(*at, node)
    text = read_text(lacl[1:]) if lacl.startswith("@") else lacl
    request = Request(text, parse_moment(from_, now, "--from"), parse_moment(to, now, "--to"), who)
    place = archive or pipeline_settings().storage or node_settings(data=data).data
    with Progress("reading the archive"):
        opened = open_archive(place)
        result = evaluate(opened, request)
    if out is None:
        for line in _lines(result):
            typer.echo(line)
    else:
        write_atomic(out, "".join(f"{line}\n" for line in _lines(result)).encode(), durable=False)
    summary = _summary(request, result, opened.counts, round(time.monotonic() - started, 1))
    typer.echo(json.dumps(summary) if as_json else _text(summary), err=True)


def _lines(result: Backtest) -> Iterator[str]:
    """The letters as `roamcast pull` prints them."""
    for letter in result.letters.to_pylist():
        number, body = letter["number"], json.loads(letter["body"])
        fields = {"offset": number, "sender": "backtest", "number": number}
        fields |= {name: body[name] for name in ("subscription", "event", "why")}
        yield json.dumps(fields, ensure_ascii=False)


def _summary(request: Request, result: Backtest, counts: ReadCounts, seconds: float) -> dict[str, Any]:
    return {
        "letters": result.letters.num_rows,
        "exact": not result.approximate,
        "approximate": list(result.approximate),
        "from": iso(request.begin),
        "to": iso(result.end),
        "complete": result.end == request.end,
        "events": result.events,
        "files": counts.files,
        "files_pruned": counts.files_pruned,
        "row_groups": counts.row_groups,
        "row_groups_pruned": counts.row_groups_pruned,
        "rows": counts.rows,
        "seconds": seconds,
    }


def _text(summary: Mapping[str, Any]) -> str:
    end = "" if summary["complete"] else ", where the archive ends"
    lines = [f"{counted(summary['letters'], 'letter')} from {summary['from']} to {summary['to']}{end}"]
    if summary["exact"]:
        lines.append("exact: the letters that the stream would have made")
    lines += [f"approximate: {reason}" for reason in summary["approximate"]]
    lines.append(
        f"{counted(summary['events'], 'event')} compared; files: {summary['files']:,} read, "
        f"{summary['files_pruned']:,} pruned; row groups: {summary['row_groups']:,} read, "
        f"{summary['row_groups_pruned']:,} pruned; {counted(summary['rows'], 'row')} read; {summary['seconds']} seconds"
    )
    return "\n".join(lines)
