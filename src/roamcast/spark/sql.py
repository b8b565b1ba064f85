"""Matching in SQL: a table function over compiled subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from roamcast.errors import InputError
from roamcast.spark.compiled import CompiledSubscriptions
from roamcast.spark.matching import plan_match
from roamcast.spark.rows.arguments import check_column_list, check_column_names, check_frame
from roamcast.spark.rows.event_fields import FieldNames
from roamcast.spark.rows.events import EventColumnNames
from roamcast.spark.rows.problems import OnBadRows, check_choice
from roamcast.spark.tasks.match import EVENTS_AT_ONCE, MatchTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType
    from pyspark.sql.udtf import UserDefinedTableFunction

__all__ = ["register"]


def register(
    name: str,
    events: DataFrame,
    subscriptions: CompiledSubscriptions,
    *,
    x: str = "x",
    y: str = "y",
    geometry: str | None = None,
    terms: str | None = "terms",
    readings: FieldNames = None,
    attributes: FieldNames = None,
    id: str | None = None,
    columns: Sequence[str] | None = None,
    on_bad_rows: OnBadRows = "fail",
) -> None:
    """Register a table function, for the session of `events`: `SELECT * FROM name(TABLE(events))`.

    Its rows are those of `match` with these arguments. `events` says which columns a table that is passed must have,
    and their types; it is not read. The table may have more columns, in any order. The reference system of binary
    geometries is checked in `events` only. Raises InputError as `match` does.
    """
    if not name.isidentifier():
        raise InputError(f"{name!r} is not a name", where="name", hint="use letters, digits and '_'")
    if not isinstance(subscriptions, CompiledSubscriptions):
        hint = "pass what `compile` returns; matches of bindings can be a view: createOrReplaceTempView"
        raise InputError("subscriptions are not compiled", where=name, hint=hint)
    check_frame(events, "events")
    check_column_names(x=x, y=y, geometry=geometry, terms=terms, id=id)
    check_column_list(columns, "columns")
    check_choice("on_bad_rows", on_bad_rows, ("fail", "skip", "collect"))
    names = EventColumnNames(x, y, terms, id, geometry, readings=readings, attributes=attributes)
    plan = plan_match(events, subscriptions, names, columns, on_bad_rows)
    function = f.arrow_udtf(_handler(plan.task, plan.selected.schema), returnType=plan.schema)
    events.sparkSession.udtf.register(name, cast("UserDefinedTableFunction", function))


def _handler(task: MatchTask, sent: StructType) -> type:
    """The class of which each task of Spark makes an instance. `sent` are the columns that it reads."""
    kinds = [_kind(field.type) for field in to_arrow_schema(sent, timezone="UTC")]

    class MatchTable:
        def __init__(self) -> None:
            self._held: list[pa.RecordBatch] = []

        def eval(self, table: Any) -> Iterator[pa.Table]:
            if not isinstance(table, pa.RecordBatch):
                raise InputError("not a table", where="events", hint="write TABLE(…) around the table or query")
            self._held.append(_select(table, task.reader.names, kinds))
            if sum(batch.num_rows for batch in self._held) >= EVENTS_AT_ONCE:
                yield from self.terminate()

        def terminate(self) -> Iterator[pa.Table]:
            held, self._held = self._held, []
            matches = [*task.run(iter(held))]
            # Spark takes at most one batch of results for each row of events, so these are one.
            if matches:
                yield pa.Table.from_batches(matches).combine_chunks()

    return MatchTable


def _kind(column: pa.DataType) -> str:
    """The name of the type that the column has in Spark."""
    return from_arrow_type(column, prefer_timestamp_ntz=True).simpleString()


def _select(batch: pa.RecordBatch, names: Sequence[str], kinds: Sequence[str]) -> pa.RecordBatch:
    """The columns that a task reads. Raises InputError if there is none of that name, or if it has another type."""
    columns = []
    for name, kind in zip(names, kinds, strict=True):
        column = _find(batch, name)
        if column is None:
            hint = f"columns: {', '.join(batch.schema.names)}"
            raise InputError(f"no column {name!r}", where="events", hint=hint)
        if (found := _kind(column.type)) != kind:
            hint = f"cast it to {kind}, or register the function with such events"
            raise InputError(f"column {name!r} is {found}", where="events", hint=hint)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, [f"_{at}" for at in range(len(columns))])


def _find(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column, or a field of a nested one. As in Spark, case counts only to tell two apart."""
    names = batch.schema.names
    found = [at for at, column in enumerate(names) if column == name]
    found = found or [at for at, column in enumerate(names) if column.lower() == name.lower()]
    if len(found) > 1:
        raise InputError(f"several columns {name!r}", where="events", hint="rename all but one of them")
    if found:
        return batch.column(found[0])
    outer_name, _, inner_name = name.partition(".")
    outer = _find(batch, outer_name) if inner_name else None
    if outer is None or not pa.types.is_struct(outer.type):
        return None
    fields = [outer.type.field(number).name for number in range(outer.type.num_fields)]
    inside = [pc.struct_field(outer, [number]) for number in range(len(fields))]
    return _find(pa.RecordBatch.from_arrays(inside, fields), inner_name)
