"""`roamcast match`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roamcast.cli.progress import Progress
from roamcast.cli.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roamcast.spark.files import BadRows

__all__ = ["match"]


class OnError(StrEnum):
    fail = "fail"
    skip = "skip"


class SpaceName(StrEnum):
    geographic = "geographic"
    planar = "planar"


_FILE = "Parquet (a file or a folder), .ndjson, .csv or .geojson."


def match(
    events: Annotated[
        Path, typer.Option(help=f"event_id, source, time, x, y, terms, optionally seq, readings: {_FILE}")
    ],
    subscriptions: Annotated[Path, typer.Option(help=f"subscription_id, min_x, min_y, max_x, max_y, terms: {_FILE}")],
    out: Annotated[Path, typer.Option(help="New folder for the pairs (event_id, subscription_id), as Parquet.")],
    on_error: Annotated[
        OnError, typer.Option(help="Bad rows: 'fail' names the first and writes nothing, 'skip' leaves them out.")
    ] = OnError.fail,
    space: Annotated[
        SpaceName, typer.Option(help="'geographic': degrees, x is the longitude; 'planar': metres.")
    ] = SpaceName.geographic,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier result in --out.")] = False,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
) -> None:
    """Match a file of events with a file of subscriptions, on Spark.

    An event matches a subscription when its point is in the box, borders included, and it has all the terms.

    In CSV terms are separated by ';'. A geographic box with min_x > max_x crosses the antimeridian.

    Example: roamcast match --events events.csv --subscriptions subscriptions.ndjson --out pairs
    """
    from roamcast.space import SPACES
    from roamcast.spark.batch import check_request, match_files

    started = time.monotonic()
    check_request(events, subscriptions, out, overwrite=overwrite)
    # Spark works in a thread of its own, so that Ctrl-C finds this one free: it stops Spark, the work fails and
    # clears up behind itself, and then it is over.
    with (
        Progress("starting Spark") as progress,
        ThreadPoolExecutor(1) as worker,
        spark_session("roamcast match", master) as spark,
    ):
        progress.measure = lambda: _tasks(spark)
        work = worker.submit(
            match_files,
            spark,
            events,
            subscriptions,
            out,
            space=SPACES[space],
            on_error=on_error.value,
            overwrite=overwrite,
            step=progress.say,
        )
        try:
            counts = work.result()
        finally:
            progress.measure = None
    _report(subscriptions, counts.subscriptions, counts.bad_subscriptions)
    _report(events, counts.events, counts.bad_events)
    typer.echo(
        f"{counts.events:,} events, {counts.subscriptions:,} subscriptions, {counts.matches:,} matches, "
        f"{time.monotonic() - started:.1f} seconds"
    )


def _report(path: Path, good: int, bad: BadRows) -> None:
    if not bad.count:
        return
    typer.echo(f"{path}: {bad.count:,} of {good + bad.count:,} rows left out", err=True)
    for where, problem in bad.first:
        typer.echo(f"  {where}: {problem}", err=True)
    if bad.count > len(bad.first):
        typer.echo(f"  … and {bad.count - len(bad.first):,} more", err=True)


def _tasks(spark: SparkSession) -> tuple[int, int]:
    """Tasks done and to do in what Spark is working on now; none while it is stopping."""
    from py4j.protocol import Py4JError

    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
    except (Py4JError, OSError, AttributeError):
        return 0, 0
    return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)
