"""`roamcast match`, and Spark sessions for commands."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias, TypeVar

import typer

from roamcast.cli.options import Json, OnError, SpaceName, require
from roamcast.cli.output import Progress, counted, print_result
from roamcast.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roamcast.collect.simulation.replication import Replication
    from roamcast.spark.files import BadRows

__all__ = ["Master", "OnSpark", "match", "replications", "spark_calls", "spark_session"]

Master = Annotated[str, typer.Option(help="Spark master.")]
T = TypeVar("T")
ReplicationResult: TypeAlias = Mapping[str, float | None]

_FORMATS = "Parquet (file or folder), .ndjson, .csv or .geojson."


def match(
    events: Annotated[
        Path, typer.Option(help=f"event_id, source, time, x, y, terms, optionally seq, readings: {_FORMATS}")
    ],
    subscriptions: Annotated[
        Path, typer.Option(help=f"subscription_id, min_x, min_y, max_x, max_y, terms: {_FORMATS}")
    ],
    out: Annotated[Path, typer.Option(help="New folder for the pairs (event_id, subscription_id), as Parquet.")],
    on_error: Annotated[
        OnError, typer.Option(help="Invalid rows: 'fail' reports the first and writes nothing; 'skip' ignores them.")
    ] = OnError.fail,
    space: Annotated[
        SpaceName, typer.Option(help="'geographic': degrees, x is the longitude; 'planar': metres.")
    ] = SpaceName.geographic,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier result in --out.")] = False,
    master: Master = "local[2]",
    as_json: Json = False,
) -> None:
    """Match a file of events with a file of subscriptions, on Spark.

    An event matches a subscription if its point is inside the box or polygon, borders included, and it has all the
    terms.

    In CSV, terms are separated by ';'. Boxes are west, south, east, north as in GeoJSON: a geographic box with
    min_x > max_x crosses the antimeridian. In GeoJSON, a subscription is a Polygon or a MultiPolygon, or a bbox without
    a geometry.

    Example: roamcast match --events events.csv --subscriptions subscriptions.ndjson --out pairs
    """
    require("pipeline")
    from roamcast.space import SPACES
    from roamcast.spark.batch import check_request, match_files

    started = time.monotonic()
    check_request(events, subscriptions, out, overwrite=overwrite)
    # Spark works in another thread, so that this one receives Ctrl-C. That stops Spark, the work fails and removes its
    # temporary files, and the command ends.
    with (
        Progress("starting Spark") as progress,
        ThreadPoolExecutor(1) as worker,
        spark_session("roamcast match", master) as spark,
    ):
        progress.measure = lambda: _task_counts(spark)
        work = worker.submit(
            match_files, spark, events, subscriptions, out, space=SPACES[space], on_error=on_error.value,
            overwrite=overwrite, step=progress.say,
        )  # fmt: skip
        try:
            counts = work.result()
        finally:
            progress.measure = None
    _report_bad_rows(subscriptions, counts.subscriptions, counts.bad_subscriptions)
    _report_bad_rows(events, counts.events, counts.bad_events)
    seconds = time.monotonic() - started
    figures = {"events": counts.events, "subscriptions": counts.subscriptions, "matches": counts.matches}
    text = f"{counted(counts.events, 'event')}, {counted(counts.subscriptions, 'subscription')}, "
    text += f"{counted(counts.matches, 'match', 'matches')}, {seconds:.1f} seconds"
    print_result({**figures, "seconds": round(seconds, 1)}, text, as_json=as_json)


def _report_bad_rows(path: Path, good: int, bad: BadRows) -> None:
    if not bad.count:
        return
    typer.echo(f"{path}: {bad.count:,} of {good + bad.count:,} rows skipped", err=True)
    for where, problem in bad.first:
        typer.echo(f"  {where}: {problem}", err=True)
    if bad.count > len(bad.first):
        typer.echo(f"  … and {bad.count - len(bad.first):,} more", err=True)


def _task_counts(spark: SparkSession) -> tuple[int, int]:
    """Finished and total tasks of the active stages; zeros while Spark stops."""
    from py4j.protocol import Py4JError

    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
    except (Py4JError, OSError, AttributeError):
        return 0, 0
    return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)


@contextmanager
def spark_session(name: str, master: str) -> Iterator[SparkSession]:
    """A Spark session for one command. Spark's log is kept only if Spark fails."""
    from roamcast.pipeline.query.session import session

    descriptor, file = tempfile.mkstemp(prefix="roamcast-", suffix=".log")
    os.close(descriptor)
    log = Path(file)
    try:
        spark = session(name, master=master, log=log)
        try:
            yield spark
        finally:
            spark.stop()
    except UnavailableError as error:
        if not log.stat().st_size:
            log.unlink()
            raise
        raise UnavailableError(error.message, where=error.where, hint=f"{error.hint}; Spark's log: {log}") from error
    except BaseException:
        log.unlink()
        raise
    log.unlink()


class Replicate(Protocol):
    """Runs jobs and returns their figures in order. Finished jobs are stored in the folder."""

    def __call__(
        self, jobs: Sequence[Replication], folder: Path, progress: Callable[[int, int], None] | None = None
    ) -> list[ReplicationResult]: ...


class OnSpark(Protocol):
    """Calls a function with a Spark session."""

    def __call__(self, work: Callable[[SparkSession], T], /) -> T: ...


@contextmanager
def spark_calls(name: str, master: str) -> Iterator[OnSpark]:
    """Call functions with a Spark session, in another thread, so that this one receives Ctrl-C."""
    with ThreadPoolExecutor(1) as worker, spark_session(name, master) as spark:

        def call(work: Callable[[SparkSession], T], /) -> T:
            return worker.submit(work, spark).result()

        yield call


@contextmanager
def replications(name: str, master: str) -> Iterator[Replicate]:
    """`replicate` with a Spark session of its own."""
    from roamcast.lab.experiments.replications import replicate

    with spark_calls(name, master) as call:

        def run(
            jobs: Sequence[Replication], folder: Path, progress: Callable[[int, int], None] | None = None
        ) -> list[ReplicationResult]:
            return call(lambda spark: replicate(spark, jobs, folder, progress=progress))

        yield run
