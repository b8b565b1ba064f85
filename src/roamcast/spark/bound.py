"""Events of sources that were bound: the as-of join of events with bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from roamcast.errors import InputError
from roamcast.pipeline.tasks.event_columns import satisfy_on
from roamcast.spark.bindings import Bindings, frame_of, needs_of_bindings
from roamcast.spark.rows.columns import check_names
from roamcast.spark.rows.conditions import NO_NEEDS
from roamcast.spark.rows.event_fields import FieldColumns, FieldNames
from roamcast.spark.rows.problems import PROBLEM, OnBadRows, good_rows, problem_column
from roamcast.spark.rows.result_columns import choose
from roamcast.spark.rows.timed import TimedNames, TimedPlan, TimedReader, common_time, plan_timed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BoundEventNames", "match_bound"]

Batches: TypeAlias = Iterator[pa.RecordBatch]

_EVENTS: Final = "events"
_HINT: Final = "fix the row, or pass on_bad_rows='skip' or 'collect'"


class BoundEventNames(NamedTuple):
    """The columns that fields of events are read from."""

    source: str
    time: str
    id: str | None = None
    readings: FieldNames = None
    attributes: FieldNames = None


def match_bound(
    events: DataFrame, bound: Bindings, names: BoundEventNames, columns: Sequence[str] | None, on_bad_rows: OnBadRows
) -> DataFrame:
    """A row for each event and binding of its source that held at its time, if the event is of interest."""
    chosen = choose(columns, [names.id] if names.id else events.columns, events.columns, bound.columns)
    of_events = [column.name for column in chosen if column.of_event]
    needs, bindings = needs_of_bindings(bound), frame_of(bound)
    timed = TimedNames(names.source, names.time, None, names.id, names.readings, names.attributes)
    plan = plan_timed(events, _EVENTS, timed, of_events, needs)
    _check_times(plan, bindings, names.time)
    reader = plan.reader
    checked = plan.frame.mapInArrow(
        lambda batches: _check(reader, on_bad_rows, batches),
        StructType([*plan.frame.schema, StructField(PROBLEM, StringType())]),
    )
    joined = _join(checked.where(f.col(PROBLEM).isNull()), reader, bindings)
    if needs != NO_NEEDS:
        joined = joined.mapInArrow(lambda batches: _filter(reader, batches), joined.schema)
    of_event, of_binding = iter(enumerate(plan.passed)), {name: at for at, name in enumerate(bindings.columns)}
    results: dict[str, Column] = {}
    schema = []
    for column in chosen:
        at, field = next(of_event) if column.of_event else (of_binding[column.name], bindings.schema[column.name])
        schema.append(column.result or field.name)
        results[schema[-1]] = f.col(f"{'' if column.of_event else 'b'}_{at}").alias(schema[-1])
    check_names(schema + [PROBLEM] * (on_bad_rows == "collect"), "matches")
    matches = joined.select(*results.values())
    if on_bad_rows != "collect":
        return matches
    nulls = (f.lit(None).cast(field.dataType).alias(f"b_{at}") for at, field in enumerate(bindings.schema))
    bad = checked.where(f.col(PROBLEM).isNotNull()).select("*", *nulls).select(*results.values(), PROBLEM)
    return matches.withColumn(PROBLEM, f.lit(None).cast("string")).union(bad)


def _check_times(plan: TimedPlan, bindings: DataFrame, time: str) -> None:
    """Raises InputError if times of events cannot be compared with those of tracks."""
    of_tracks = bindings.schema["begin"].dataType
    if common_time(plan.time, of_tracks) is None:
        message = f"column {time!r} is {plan.time.simpleString()}, but tracks have {of_tracks.simpleString()}"
        raise InputError(message, where=_EVENTS, hint="cast one of them")


def _join(events: DataFrame, reader: TimedReader, bindings: DataFrame) -> DataFrame:
    """The columns of events, then those of bindings with names `b_0`, `b_1`, …"""
    numbered = bindings.toDF(*(f"b_{at}" for at in range(len(bindings.columns))))
    source, begin, end = (f.col(f"b_{bindings.columns.index(name)}") for name in ("source", "begin", "end"))
    time = f.col(f"_{reader.time}")
    holds = (f.col(f"_{reader.entity}").cast("string") == source) & (begin <= time) & (end.isNull() | (time < end))
    return events.drop(PROBLEM).join(numbered, holds)


def _check(reader: TimedReader, on_bad_rows: OnBadRows, batches: Batches) -> Batches:
    """Add the problem of each row."""
    for batch in batches:
        problems = reader.read(batch).problems
        if problems and on_bad_rows == "fail":
            raise reader.error(batch, problems, _HINT)
        rows = batch.append_column(PROBLEM, problem_column(problems, range(batch.num_rows)))
        yield rows if on_bad_rows != "skip" else rows.filter(pa.array(good_rows(problems, batch.num_rows)))


def _filter(reader: TimedReader, batches: Batches) -> Batches:
    """Keep the rows whose readings are of interest. The condition is in the last column."""
    for batch in batches:
        rows = reader.read(batch)
        columns, every = FieldColumns(rows.points, rows.fields), np.arange(batch.num_rows)
        yield batch.filter(pa.array(satisfy_on(columns, every, pa.chunked_array([batch.column(-1)]))))
