"""Matching files and tables: what `roamcast match` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import SpatialType

from roamcast.errors import InputError
from roamcast.places import Places
from roamcast.spark.compiled import SpaceName, compile_frame, files_of, needs_of
from roamcast.spark.files.geojson import GEOMETRY, Noun
from roamcast.spark.files.sources import NUMBER, PLACE, Fields, Source, SourceFrame, show_place
from roamcast.spark.files.spark_errors import spark_errors
from roamcast.spark.files.targets import Target
from roamcast.spark.geoparquet import GEOPARQUET
from roamcast.spark.matching import find_bad_events, kept_columns, match_frame
from roamcast.spark.rows.conditions import Needs
from roamcast.spark.rows.event_fields import FieldNames
from roamcast.spark.rows.events import EventColumnNames, plan_events
from roamcast.spark.rows.lines import CORRUPT, FieldKind
from roamcast.spark.rows.place_rows import read_places
from roamcast.spark.rows.problems import PROBLEM, BadRowError, describe_values
from roamcast.spark.rows.subscriptions import SubscriptionColumnNames, plan_subscriptions
from roamcast.spark.tasks.explain import Explanation, explain_run, new_reports
from roamcast.spark.tasks.local import LocalSession, NeedsSparkError
from roamcast.spark.tasks.tally import new_tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BadRows", "MatchCounts", "MatchRequest", "OnError", "check_request", "match_files", "match_local_files"]

OnError: TypeAlias = Literal["fail", "skip"]

_EVENTS: Final = "events"
_SUBSCRIPTIONS: Final = "subscriptions"
_REPORTED: Final = 20


@dataclass(frozen=True, slots=True)
class BadRows:
    """How many rows are bad, and the place and problem of the first ones."""

    count: int = 0
    first: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """What was matched, and the rows that were left out."""

    events: int
    subscriptions: int
    matches: int
    bad_events: BadRows
    bad_subscriptions: BadRows
    explanation: Explanation | None = None


class MatchRequest(NamedTuple):
    """What to match, and where the result goes.

    Without `columns` the result has both ids. `bad_rows` get a folder for each side that has some.
    """

    events: Source
    subscriptions: Source
    out: Target
    event_columns: EventColumnNames = EventColumnNames(id="event_id")
    subscription_columns: SubscriptionColumnNames = SubscriptionColumnNames(id="subscription_id")
    columns: tuple[str, ...] | None = None
    space: SpaceName = "geographic"
    on_error: OnError = "fail"
    bad_rows: Target | None = None
    explain: bool = False
    places: str | None = None

    @property
    def on_bad_rows(self) -> OnError:
        return "skip" if self.bad_rows else self.on_error

    @property
    def event_fields(self) -> Fields:
        names = self.event_columns
        numbers = [] if names.geometry else [names.x, names.y]
        fields = _fields(numbers, names.terms, names.id, names.geometry, self.columns)
        readings = _kinds(names.readings, "numbers", "number")
        return {**fields, **readings, **_kinds(names.attributes, "object", "any")}

    @property
    def subscription_fields(self) -> Fields:
        names = self.subscription_columns
        numbers = (*(names.box or ()), *(names.circle or ()))
        return _fields(numbers, names.terms, names.id, names.geometry or names.lacl, self.columns)

    @property
    def noun(self) -> Noun:
        """What the features of a GeoJSON file of subscriptions are."""
        return "query" if self.subscription_columns.lacl else "subscription"

    def refuse(self, bad: BadRows, total: int) -> None:
        """Raise InputError for bad rows that are neither skipped nor written."""
        if bad.count and self.on_bad_rows == "fail":
            (where, problem), count = bad.first[0], f"{bad.count:,} of {total:,} rows are bad"
            hint = "fix them, or use --on-error skip or --bad-rows"
            raise InputError(f"{problem}; {count}", where=where, hint=hint)


def _fields(
    numbers: Iterable[str], terms: str | None, id: str | None, geometry: str | None, others: Iterable[str] | None
) -> Fields:
    kinds: dict[str, FieldKind] = dict.fromkeys([*(others or ()), *([id] if id else [])], "any")
    kinds |= dict.fromkeys(numbers, "number")
    return kinds | ({terms: "terms"} if terms else {}) | ({geometry: "text"} if geometry else {})


def _kinds(names: FieldNames, whole: FieldKind, each: FieldKind) -> Fields:
    """A column of all readings or attributes, or a column for each of them."""
    if isinstance(names, str):
        return {names: whole}
    return dict.fromkeys(names.values() if isinstance(names, Mapping) else names or (), each)


def check_request(request: MatchRequest) -> MatchRequest:
    """The request with the formats of its sources. Raises the errors that can be found without Spark."""
    sources = request.events.check(), request.subscriptions.check()
    request.out.check(*sources)
    events, subscriptions = request.event_columns, request.subscription_columns
    if request.out.format == GEOPARQUET and request.columns is None and events.id and subscriptions.id:
        hint = f"name the columns: --columns {events.id},{events.geometry or 'GEOMETRY'}"
        raise InputError("no geometry column: the result has both ids", where=request.out.location, hint=hint)
    if subscriptions.circle and sources[1].format == "geojson":
        hint = "omit --circle, or make columns of the points"
        raise InputError("features have geometries, not circles", where=request.subscriptions.location, hint=hint)
    if request.bad_rows is not None:
        request.bad_rows.folder(_EVENTS).check(*sources)
        request.bad_rows.folder(_SUBSCRIPTIONS).check(*sources)
    return request._replace(events=sources[0], subscriptions=sources[1])


def match_files(
    spark: SparkSession, request: MatchRequest, *, step: Callable[[str], None] = lambda _: None
) -> MatchCounts:
    """Write each match once, in no particular order. `step` is called with the name of each step.

    Raises InputError for bad input (for bad rows unless they are skipped or written), ConflictError if something must
    not be replaced, StorageError if a disk refuses. After an error a local result is unchanged.
    """
    request = check_request(request)
    with spark_errors():
        step("reading subscriptions")
        events = request.events.read(spark, request.event_fields, "event", request.event_columns.id)
        names = request.subscription_columns
        subscriptions = request.subscriptions.read(spark, request.subscription_fields, request.noun, names.id)
        event_names = request.event_columns._replace(lines=events.lines)
        plan_events(events.frame, event_names, (), request.space)  # raises its errors before any work
        is_feature = request.subscriptions.format == "geojson" and request.noun == "subscription"
        geometry = GEOMETRY if is_feature else names.geometry
        places = read_places(request.places, request.space)
        names = names._replace(geometry=geometry, lines=subscriptions.lines)
        columns = kept_columns(request.columns, subscriptions.frame)
        with compile_frame(subscriptions.frame, names, columns, request.space, None, places) as compiled:
            bad_subscriptions = BadRows()
            if compiled.bad_rows.num_rows:
                bad_subscriptions = _bad_subscriptions(spark, request, subscriptions, names, places)
                request.refuse(bad_subscriptions, compiled.count + bad_subscriptions.count)
            step("matching")
            tally, reports = new_tally(spark), new_reports(spark) if request.explain else None
            on_bad_rows = "fail" if isinstance(spark, LocalSession) else request.on_bad_rows
            matches = match_frame(events.frame, compiled, event_names, request.columns, on_bad_rows, tally, reports)
            try:
                request.out.write(matches)
            except (PySparkException, Py4JJavaError) as error:
                if BadRowError.__name__ in str(error):
                    request.refuse(*_bad_events(spark, request, events, event_names, needs_of(compiled)))
                raise
            bad_events = BadRows()
            if tally.value.bad:
                bad_events, _ = _bad_events(spark, request, events, event_names, needs_of(compiled))
            counts, explanation = tally.value, None
            if reports is not None:
                locations = request.events.location, request.subscriptions.location
                explanation = explain_run(
                    events.frame, files_of(compiled), reports.value, locations, request.out.location
                )
    return MatchCounts(
        counts.events - counts.bad, compiled.count, counts.matches, bad_events, bad_subscriptions, explanation
    )


def match_local_files(
    session: LocalSession, request: MatchRequest, *, step: Callable[[str], None] = lambda _: None
) -> MatchCounts | None:
    """Like `match_files`, without Spark; None, and nothing is written, if Spark has to do it.

    That is unless all files are local, Parquet, have columns of common types, and no row is bad. Errors are those of
    the disk; why else the input cannot be used is kept as `session.error`.
    """
    request = check_request(request)
    sources = request.events, request.subscriptions
    if {source.format for source in sources} != {"parquet"} or not all(source.is_local for source in sources):
        return None
    if not request.out.is_folder or request.out.format != "parquet":
        return None
    try:
        return match_files(cast("SparkSession", session), request, step=step)
    except InputError as error:
        if not isinstance(error, BadRowError):
            session.error = error
        elif request.on_bad_rows == "fail":
            hint = "fix it; Java is needed to skip bad rows"
            session.error = InputError(error.message, where=request.events.location, hint=hint)
        return None
    except NeedsSparkError:
        return None


def _bad_events(
    spark: SparkSession, request: MatchRequest, events: SourceFrame, names: EventColumnNames, needs: Needs
) -> tuple[BadRows, int]:
    """Find the bad rows and write them if they are to be written; also return the number of all rows."""
    tally = new_tally(spark)
    bad = find_bad_events(events.located(), names, request.space, tally, needs)
    first = bad.orderBy(NUMBER).limit(_REPORTED).collect()
    counts = tally.value
    if request.bad_rows is not None:
        request.bad_rows.folder(_EVENTS).write(_for_output(bad))
    return BadRows(counts.bad, tuple(_report(row.asDict()) for row in first)), counts.events


def _bad_subscriptions(
    spark: SparkSession,
    request: MatchRequest,
    subscriptions: SourceFrame,
    names: SubscriptionColumnNames,
    places: Places | None,
) -> BadRows:
    """Find the bad rows and write them if they are to be written."""
    located = subscriptions.located()
    selected, reader = plan_subscriptions(located, names, located.columns, request.space)
    bad = reader.read(selected.toArrow(), places).bad_rows
    if request.bad_rows is not None:
        request.bad_rows.folder(_SUBSCRIPTIONS).write(_for_output(spark.createDataFrame(bad)))
    return BadRows(bad.num_rows, tuple(_report(row) for row in bad.sort_by(NUMBER).slice(0, _REPORTED).to_pylist()))


def _for_output(bad: DataFrame) -> DataFrame:
    """Geometries as WKB, because JSON cannot have Spark's own."""
    columns = [
        f"st_asbinary(`{field.name}`) AS `{field.name}`"
        if isinstance(field.dataType, SpatialType)
        else f"`{field.name}`"
        for field in bad.schema.fields
        if field.name not in (PLACE, NUMBER, PROBLEM)
    ]
    return bad.selectExpr(f"{PLACE} AS place", PROBLEM, *columns)


def _report(row: Mapping[str, Any]) -> tuple[str, str]:
    """The place of a bad row, and its problem and values for a message."""
    values = {name: value for name, value in row.items() if name not in (PLACE, NUMBER, PROBLEM, CORRUPT)}
    content = row.get(CORRUPT) or describe_values(values)
    return show_place(row[PLACE]), f"{row[PROBLEM]}: {content}"
