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
from roamcast.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roamcast.collect.simulation.replication import Replication
    from roamcast.spark.files.batch import BadRows

__all__ = ["Master", "OnSpark", "match", "replications", "spark_calls", "spark_session"]

Master = Annotated[str, typer.Option(help="Spark master.")]
T = TypeVar("T")
ReplicationResult: TypeAlias = Mapping[str, float | None]

_ANY = "Path, glob, URI or table:NAME"
_EVENTS, _BOXES = "Events", "Subscriptions"
_FORMAT = "Format of Spark's; default: that of the suffix."


def match(
    events: Annotated[str, typer.Option(help=f"{_ANY}: .parquet (file or folder), .orc, .ndjson, .csv, .geojson.")],
    subscriptions: Annotated[str, typer.Option(help="As --events.")],
    out: Annotated[str, typer.Option(help="New folder, URI or table:NAME for the matches.")],
    x: Annotated[str, typer.Option(help="Column of the longitude, or x.", rich_help_panel=_EVENTS)] = "x",
    y: Annotated[str, typer.Option(help="Column of the latitude, or y.", rich_help_panel=_EVENTS)] = "y",
    terms: Annotated[str, typer.Option(help="Column of the terms; '': none.", rich_help_panel=_EVENTS)] = "terms",
    id: Annotated[str, typer.Option(help="Column of the id; '': none.", rich_help_panel=_EVENTS)] = "event_id",
    geometry: Annotated[
        str | None, typer.Option(help="Column of Points, instead of --x and --y.", rich_help_panel=_EVENTS)
    ] = None,
    readings: Annotated[
        str | None,
        typer.Option(help="Column of all readings, or NAME=COLUMN,… of each.", rich_help_panel=_EVENTS),
    ] = None,
    attributes: Annotated[
        str | None,
        typer.Option(help="Column of all attributes of the source, or NAME=COLUMN,….", rich_help_panel=_EVENTS),
    ] = None,
    events_format: Annotated[str | None, typer.Option(help=_FORMAT, rich_help_panel=_EVENTS)] = None,
    box: Annotated[
        str, typer.Option(help="Columns of west, south, east, north; '': none.", rich_help_panel=_BOXES)
    ] = "min_x,min_y,max_x,max_y",
    subscription_geometry: Annotated[
        str | None, typer.Option(help="Column of Polygons, instead of --box.", rich_help_panel=_BOXES)
    ] = None,
    circle: Annotated[
        str | None, typer.Option(help="Columns of x, y, radius in metres, instead of --box.", rich_help_panel=_BOXES)
    ] = None,
    lacl: Annotated[
        str | None, typer.Option(help="Column of LACL queries, instead of regions and terms.", rich_help_panel=_BOXES)
    ] = None,
    places: Annotated[
        str | None, typer.Option(help="GeoJSON file of the places that queries name.", rich_help_panel=_BOXES)
    ] = None,
    subscription_terms: Annotated[
        str, typer.Option(help="Column of the terms; '': none.", rich_help_panel=_BOXES)
    ] = "terms",
    subscription_id: Annotated[
        str, typer.Option(help="Column of the id; '': none.", rich_help_panel=_BOXES)
    ] = "subscription_id",
    subscriptions_format: Annotated[str | None, typer.Option(help=_FORMAT, rich_help_panel=_BOXES)] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the result, from both sides: a,b,…", show_default="both ids")
    ] = None,
    format: Annotated[str, typer.Option(help="Format of the result: one of Spark's, or geoparquet.")] = "parquet",
    on_error: Annotated[
        OnError, typer.Option(help="Invalid rows: 'fail' reports the first and writes nothing; 'skip' ignores them.")
    ] = OnError.fail,
    bad_rows: Annotated[
        str | None, typer.Option(help="New folder or URI for invalid rows, which do not fail then, as JSON.")
    ] = None,
    space: Annotated[
        SpaceName, typer.Option(help="'geographic': degrees, x is the longitude; 'planar': metres.")
    ] = SpaceName.geographic,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace earlier results.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show the plan, candidates per match and skew of this run.")
    ] = False,
    master: Master = "local[2]",
    as_json: Json = False,
) -> None:
    """Match events with subscriptions, on Spark: files, folders, object stores or tables.

    Local Parquet files are matched in this process, without Java, if the master is local.

    An event matches a subscription if its point is inside the box or polygon, borders included, and it has all the
    terms.

    With --lacl, subscriptions are queries: Select all() with a region, terms, conditions on readings and attributes.

    Terms are a list, or a text with ';' between terms. Boxes are west, south, east, north as in GeoJSON: a geographic
    box with west > east crosses the antimeridian. Geometries are WKB, WKT or GeoJSON: a Point of an event, a Polygon or
    MultiPolygon of a subscription. In GeoJSON files, a subscription may also have a bbox without a geometry.

    Example: roamcast match --events events.csv --subscriptions subscriptions.ndjson --out pairs
    """
    require("pipeline")
    from roamcast.spark.compiled import choose_names
    from roamcast.spark.files.batch import MatchRequest, check_request, match_files, match_local_files
    from roamcast.spark.files.sources import Source
    from roamcast.spark.files.targets import Target
    from roamcast.spark.rows.events import EventColumnNames
    from roamcast.spark.tasks.local import LocalSession, local_threads

    started = time.monotonic()
    subscription_columns = choose_names(
        _box(box), subscription_geometry, _circle(circle), subscription_terms or None, lacl, subscription_id or None
    )
    if places is not None and lacl is None:
        raise InputError("only queries name places", where="--places", hint="pass --lacl, or omit --places")
    request = check_request(
        MatchRequest(
            Source(events, events_format),
            Source(subscriptions, subscriptions_format),
            Target(out, format, overwrite),
            EventColumnNames(
                x, y, terms or None, id or None, geometry, readings=_fields(readings), attributes=_fields(attributes)
            ),
            subscription_columns,
            tuple(_names(columns)) if columns else None,
            space.value,
            on_error.value,
            Target(bad_rows, "json", overwrite, "--bad-rows") if bad_rows else None,
            explain,
            places,
        )
    )
    # The work is done in another thread, so that this one receives Ctrl-C. That stops Spark or the local session, the
    # work fails and removes its temporary files, and the command ends.
    counts, refused = None, None
    with Progress("reading subscriptions") as progress, ThreadPoolExecutor(1) as worker:
        if threads := local_threads(master):
            local = LocalSession(threads)
            progress.measure = lambda: (local.done, local.total)
            work = worker.submit(match_local_files, local, request, step=progress.say)
            try:
                counts, refused = work.result(), local.error
            finally:
                local.stop()
                progress.measure = None
        if counts is None:
            progress.say("starting Spark")
            with _instead(refused), spark_session("roamcast match", master) as spark:
                progress.measure = lambda: _task_counts(spark)
                try:
                    counts = worker.submit(match_files, spark, request, step=progress.say).result()
                finally:
                    progress.measure = None
    _report_bad_rows(subscriptions, counts.subscriptions, counts.bad_subscriptions)
    _report_bad_rows(events, counts.events, counts.bad_events)
    seconds = time.monotonic() - started
    figures = {"events": counts.events, "subscriptions": counts.subscriptions, "matches": counts.matches}
    text = f"{counted(counts.events, 'event')}, {counted(counts.subscriptions, 'subscription')}, "
    text += f"{counted(counts.matches, 'match', 'matches')}, {seconds:.1f} seconds"
    result: dict[str, object] = {**figures, "seconds": round(seconds, 1)}
    if counts.explanation is not None:
        result["explain"], text = counts.explanation.to_json(), f"{counts.explanation}\n{text}"
    print_result(result, text, as_json=as_json)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _box(text: str) -> tuple[str, str, str, str] | None:
    match _names(text):
        case []:
            return None
        case [west, south, east, north]:
            return west, south, east, north
        case names:
            raise InputError(f"{len(names)} columns", where="--box", hint="name four: west, south, east, north")


def _circle(text: str | None) -> tuple[str, str, str] | None:
    match _names(text or ""):
        case []:
            return None
        case [x, y, radius]:
            return x, y, radius
        case names:
            raise InputError(f"{len(names)} columns", where="--circle", hint="name three: x, y, radius")


def _fields(text: str | None) -> str | dict[str, str] | None:
    """A column of all fields; or with `=` or a comma the column of each, by the name of the field."""
    if not text or ("=" not in text and "," not in text):
        return text or None
    pairs = (name.partition("=") for name in _names(text))
    return {name.strip(): column.strip() or name.strip() for name, _, column in pairs}


def _report_bad_rows(path: str, good: int, bad: BadRows) -> None:
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
def _instead(refused: InputError | None) -> Iterator[None]:
    """Raise this error if Spark is not available, which would only have said it better."""
    try:
        yield
    except UnavailableError as error:
        if refused is None:
            raise
        raise refused from error


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
