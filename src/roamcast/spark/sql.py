"""Matching in SQL: a table function over compiled subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

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

    Its rows are those of `match` with these arguments. `events` says which columns a table that is passed must have;
    it is not read. The table may have more columns, in any order. Raises InputError as `match` does.
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
    function = f.arrow_udtf(_handler(plan.task), returnType=plan.schema)
    events.sparkSession.udtf.register(name, cast("UserDefinedTableFunction", function))


def _handler(task: MatchTask) -> type:
    """The class of which each task of Spark makes an instance."""

    class MatchTable:
        def __init__(self) -> None:
            self._held: list[pa.RecordBatch] = []

        def eval(self, table: Any) -> Iterator[pa.Table]:
            if not isinstance(table, pa.RecordBatch):
                raise InputError("not a table", where="events", hint="write TABLE(…) around the table or query")
            self._held.append(_select(table, task.reader.names))
            if sum(batch.num_rows for batch in self._held) >= EVENTS_AT_ONCE:
                yield from self.terminate()

        def terminate(self) -> Iterator[pa.Table]:
            held, self._held = self._held, []
            matches = [*task.run(iter(held))]
            # Spark takes at most one batch of results for each row of events, so these are one.
            if matches:
                yield pa.Table.from_batches(matches).combine_chunks()

    return MatchTable


def _select(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The columns that a task reads. Raises InputError if there is none of that name."""
    columns = []
    for name in names:
        column = _find(batch, name)
        if column is None:
            hint = f"columns: {', '.join(batch.schema.names)}"
            raise InputError(f"no column {name!r}", where="events", hint=hint)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, [f"_{at}" for at in range(len(columns))])


def _find(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column, or a field of a nested one. Case does not count, as in Spark."""
    at = {column.lower(): number for number, column in enumerate(batch.schema.names)}
    if name.lower() in at:
        return batch.column(at[name.lower()])
    outer_name, _, inner_name = name.partition(".")
    outer = batch.column(at[outer_name.lower()]) if inner_name and outer_name.lower() in at else None
    if outer is None or not pa.types.is_struct(outer.type):
        return None
    fields = [outer.type.field(number).name for number in range(outer.type.num_fields)]
    inside = [pc.struct_field(outer, [number]) for number in range(len(fields))]
    return _find(pa.RecordBatch.from_arrays(inside, fields), inner_name)
