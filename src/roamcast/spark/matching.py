"""`match`: a frame of events and compiled subscriptions to a frame of matches."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import StringType, StructField, StructType

from roamcast.errors import InputError
from roamcast.spark.columns import check_names
from roamcast.spark.compiled import CompiledSubscriptions, SpaceName, compile, fields_of, files_of
from roamcast.spark.events import EventColumnNames, plan_events
from roamcast.spark.explain import ReportAccumulator
from roamcast.spark.lines import CORRUPT
from roamcast.spark.problems import PROBLEM, OnBadRows, check_choice
from roamcast.spark.tally import TallyAccumulator
from roamcast.spark.tasks import MatchTask, ResultColumn

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
    subscriptions: CompiledSubscriptions | DataFrame,
    *,
    x: str = "x",
    y: str = "y",
    geometry: str | None = None,
    terms: str | None = "terms",
    id: str | None = None,
    columns: Sequence[str] | None = None,
    on_bad_rows: OnBadRows = "fail",
) -> DataFrame:
    """Return a row for each match of an event and a subscription, in no particular order.

    Events are a batch or a stream. `x`, `y` and `terms` name their columns, `terms=None`: they have none. `geometry` is
    a column of Points instead of x and y: WKB, WKT or GeoJSON. Terms are an array of texts, or a text with `;` between
    terms. Fields of nested columns are written `position.lon`.

    `columns` are those of the result, from both sides. Without: `id`, or if there is none all columns of events; then
    those of the compiled subscriptions. A frame of subscriptions is compiled with its default columns; to keep the
    index for several calls, `compile` it.

    Raises InputError for columns that are missing, ambiguous or have a wrong type. Bad rows are events without a valid
    point, with a null among their terms, or without their `id`. The tasks fail at the first one; with "skip" they leave
    bad rows out; with "collect" the result has them too, with nulls for the subscription, and a column `problem`, which
    is null for matches.
    """
    check_choice("on_bad_rows", on_bad_rows, ("fail", "skip", "collect"))
    if not isinstance(subscriptions, CompiledSubscriptions):
        subscriptions = compile(subscriptions, columns=kept_columns(columns, subscriptions))
    return match_frame(events, subscriptions, EventColumnNames(x, y, terms, id, geometry), columns, on_bad_rows)


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
    chosen = _choose(columns, [names.id] if names.id else frame.columns, frame.columns, compiled.columns)
    of_events = [column.name for column in chosen if column.of_event]
    selected, fields, reader = plan_events(frame, names, of_events, compiled.space)
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


def find_bad_events(frame: DataFrame, names: EventColumnNames, space: SpaceName, tally: TallyAccumulator) -> DataFrame:
    """The bad rows among events: all columns, and the problem of each."""
    selected, fields, reader = plan_events(frame, names, frame.columns, space)
    columns = tuple(ResultColumn(field.name, True, at) for at, field in enumerate(fields))
    task = MatchTask(reader, None, columns, "collect", tally)
    schema = StructType([*fields, StructField(PROBLEM, StringType())])
    return selected.mapInArrow(lambda batches: task.run(batches), schema)


class _Chosen(NamedTuple):
    """A column of one side, and its name in the result; None: the name that it has, without those of outer columns."""

    of_event: bool
    name: str
    result: str | None = None


def _choose(
    columns: Sequence[str] | None, default: Sequence[str], of_events: Sequence[str], of_subscriptions: Sequence[str]
) -> list[_Chosen]:
    """The columns of the result. What both sides have is called `event_NAME` and `subscription_NAME`.

    Raises InputError for names that no side has, or both.
    """
    if columns is not None and not columns:
        raise InputError("no columns", where="columns", hint="name at least one")
    both = set(default if columns is None else of_events).intersection(of_subscriptions)
    known = {
        f"{noun}_{name}" if name in both else name: _Chosen(noun == "event", name, f"{noun}_{name}")
        if name in both
        else _Chosen(noun == "event", name)
        for noun, side in (("event", of_events if columns else default), ("subscription", of_subscriptions))
        for name in side
    }
    if columns is None:
        return list(known.values())
    for name in columns:
        if name in both:
            hint = f"write event_{name} or subscription_{name}"
            raise InputError(f"both sides have a column {name!r}", where="columns", hint=hint)
        if name not in known and "." not in name:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            hint += f"columns: {', '.join(each for each in known if each != CORRUPT)}"
            raise InputError(f"no column {name!r}", where="columns", hint=hint)
    return [known.get(name, _Chosen(True, name)) for name in columns]
