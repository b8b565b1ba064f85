"""`match`: a frame of events and compiled subscriptions to a frame of matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import StringType, StructField, StructType

from roamcast.errors import InputError
from roamcast.spark.bindings import Bindings
from roamcast.spark.bound import BoundEventNames, match_bound
from roamcast.spark.compiled import CompiledSubscriptions, SpaceName, compile, fields_of, files_of, needs_of
from roamcast.spark.rows.arguments import check_column_list, check_column_names, check_frame
from roamcast.spark.rows.columns import check_names
from roamcast.spark.rows.conditions import NO_NEEDS, Needs
from roamcast.spark.rows.event_fields import FieldNames
from roamcast.spark.rows.events import EventColumnNames, plan_events
from roamcast.spark.rows.problems import PROBLEM, OnBadRows, check_choice
from roamcast.spark.rows.result_columns import choose
from roamcast.spark.tasks.explain import ReportAccumulator
from roamcast.spark.tasks.match import MatchTask, ResultColumn
from roamcast.spark.tasks.tally import TallyAccumulator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MatchPlan", "find_bad_events", "kept_columns", "match", "match_frame", "plan_match"]


class MatchPlan(NamedTuple):
    """The frame that tasks get, what they do with it, and the columns of the result."""

    selected: DataFrame
    task: MatchTask
    schema: StructType


def match(
    events: DataFrame,
    subscriptions: CompiledSubscriptions | Bindings | DataFrame,
    *,
    x: str = "x",
    y: str = "y",
    geometry: str | None = None,
    terms: str | None = "terms",
    readings: FieldNames = None,
    attributes: FieldNames = None,
    source: str = "source",
    time: str = "time",
    id: str | None = None,
    columns: Sequence[str] | None = None,
    on_bad_rows: OnBadRows = "fail",
) -> DataFrame:
    """Return a row for each match of an event and a subscription, in no particular order.

    Events are a batch or a stream. `x`, `y` and `terms` name their columns, `terms=None`: they have none. `geometry` is
    a column of Points instead of x and y: WKB, WKT or GeoJSON. Terms are an array of texts, or a text with `;` between
    terms. Fields of nested columns are written `position.lon`.

    `readings` and `attributes` are for subscriptions that test them: a column that has all of them, or columns, as a
    list or by name. A column of readings is a map or a struct of numbers; one of the attributes of an event's source is
    a map, a struct, or texts of JSON objects.

    With `bindings` an event matches if its `source` was bound at its `time`, and its readings are of interest.

    `columns` are those of the result, from both sides. Without: `id`, or if there is none all columns of events; then
    those of the compiled subscriptions. A frame of subscriptions is compiled with its default columns; to keep the
    index for several calls, `compile` it.

    Raises InputError for columns that are missing, ambiguous or have a wrong type. Bad rows are events without a valid
    point, with a null among their terms, or without their `id`. The tasks fail at the first one; with "skip" they leave
    bad rows out; with "collect" the result has them too, with nulls for the subscription, and a column `problem`, which
    is null for matches.
    """
    check_frame(events, "events")
    check_column_names(x=x, y=y, geometry=geometry, terms=terms, source=source, time=time, id=id)
    check_column_list(columns, "columns")
    check_choice("on_bad_rows", on_bad_rows, ("fail", "skip", "collect"))
    if isinstance(subscriptions, Bindings):
        _check_unused(x=x != "x", y=y != "y", geometry=geometry is not None, terms=terms not in (None, "terms"))
        bound = BoundEventNames(source, time, id, readings, attributes)
        return match_bound(events, subscriptions, bound, columns, on_bad_rows)
    names = EventColumnNames(x, y, terms, id, geometry, readings=readings, attributes=attributes)
    if not isinstance(subscriptions, CompiledSubscriptions):
        check_frame(subscriptions, "subscriptions")
        plan_events(events, names, (), "geographic")  # raises its errors before subscriptions are read
        subscriptions = compile(subscriptions, columns=kept_columns(columns, subscriptions))
    return match_frame(events, subscriptions, names, columns, on_bad_rows)


def _check_unused(**given: bool) -> None:
    """Raises InputError for what has no meaning with bindings."""
    for argument, is_given in given.items():
        if is_given:
            hint = f"omit {argument}=: events are joined by source and time"
            raise InputError("not used with bindings", where=argument, hint=hint)


def kept_columns(columns: Sequence[str] | None, subscriptions: DataFrame) -> list[str] | None:
    """The columns of subscriptions that a result with these columns may need; None: the default ones."""
    if columns is None:
        return None
    wanted = set(columns)
    return [n for n in subscriptions.columns if not wanted.isdisjoint((n, f"event_{n}", f"subscription_{n}"))]


def match_frame(
    frame: DataFrame,
    compiled: CompiledSubscriptions,
    names: EventColumnNames,
    columns: Sequence[str] | None,
    on_bad_rows: OnBadRows,
    tally: TallyAccumulator | None = None,
    reports: ReportAccumulator | None = None,
) -> DataFrame:
    """Like `match`. Tasks count what they do in `tally`, and add themselves to `reports`."""
    plan = plan_match(frame, compiled, names, columns, on_bad_rows)
    task = plan.task._replace(tally=tally, reports=reports)
    return plan.selected.mapInArrow(lambda batches: task.run(batches), plan.schema)


def plan_match(
    frame: DataFrame,
    compiled: CompiledSubscriptions,
    names: EventColumnNames,
    columns: Sequence[str] | None,
    on_bad_rows: OnBadRows,
) -> MatchPlan:
    """Choose the columns. Raises InputError as `match` does."""
    chosen = choose(columns, [names.id] if names.id else frame.columns, frame.columns, compiled.columns)
    of_events = [column.name for column in chosen if column.of_event]
    selected, fields, reader = plan_events(frame, names, of_events, compiled.space, needs_of(compiled))
    of_event, of_subscription = iter(enumerate(fields)), {f.name: (n, f) for n, f in enumerate(fields_of(compiled))}
    result: list[ResultColumn] = []
    schema = StructType()
    for column in chosen:
        at, field = next(of_event) if column.of_event else of_subscription[column.name]
        name = column.result or field.name
        result.append(ResultColumn(name, column.of_event, at))
        schema.add(StructField(name, field.dataType, True, field.metadata))
    if on_bad_rows == "collect":
        schema.add(PROBLEM, StringType())
    check_names(schema.names, "matches")
    return MatchPlan(selected, MatchTask(reader, files_of(compiled), tuple(result), on_bad_rows), schema)


def find_bad_events(
    frame: DataFrame, names: EventColumnNames, space: SpaceName, tally: TallyAccumulator, needs: Needs = NO_NEEDS
) -> DataFrame:
    """The bad rows among events: all columns, and the problem of each."""
    selected, fields, reader = plan_events(frame, names, frame.columns, space, needs)
    columns = tuple(ResultColumn(field.name, True, at) for at, field in enumerate(fields))
    task = MatchTask(reader, None, columns, "collect", tally)
    schema = StructType([*fields, StructField(PROBLEM, StringType())])
    return selected.mapInArrow(lambda batches: task.run(batches), schema)
