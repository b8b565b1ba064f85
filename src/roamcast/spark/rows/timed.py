"""Rows with an entity and a time: events of sources that may be bound, and tracks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, IntegralType, LongType, StringType, TimestampNTZType, TimestampType

from roamcast.match.port import Events
from roamcast.space import SPACES, Floats
from roamcast.spark.rows.columns import ID, NUMBER, ColumnKind, SentColumns, check_ids, no_terms, to_numbers
from roamcast.spark.rows.conditions import Needs
from roamcast.spark.rows.event_fields import EventFields, FieldNames, FieldReader, plan_fields
from roamcast.spark.rows.problems import BadRowError, Problems, describe_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

__all__ = ["ENTITY", "TimedNames", "TimedPlan", "TimedReader", "TimedRows", "common_time", "entities_of", "plan_timed"]

ENTITY: Final = ColumnKind("texts or whole numbers", lambda kind: isinstance(kind, StringType | IntegralType))
TIME: Final = ColumnKind(
    "timestamps or whole numbers", lambda kind: isinstance(kind, TimestampType | TimestampNTZType | IntegralType)
)


class TimedNames(NamedTuple):
    """The columns that fields are read from. Without x and y, rows have no point."""

    entity: str
    time: str
    point: tuple[str, str] | None = None
    id: str | None = None
    readings: FieldNames = None
    attributes: FieldNames = None


class TimedRows(NamedTuple):
    """A batch: names of entities, times as whole numbers, points and fields. Rows with a problem have anything."""

    entity: pa.Array
    time: pa.Array
    points: Events
    fields: EventFields
    problems: Problems


class TimedReader(NamedTuple):
    """Reads the batches of a frame that `plan_timed` has made: fields are at these positions."""

    side: str
    names: tuple[str, ...]
    entity: int
    time: int
    point: tuple[int, ...]
    id: int | None
    fields: FieldReader
    space: str

    def read(self, batch: pa.RecordBatch) -> TimedRows:
        problems: Problems = {}
        for at in (self.id, self.entity, self.time):
            if at is not None:
                check_ids(batch.column(at), self.names[at], problems)
        x, y = self._points(batch, problems)
        fields = self.fields.read(batch, self.names, problems)
        points = Events(x, y, no_terms(batch.num_rows))
        return TimedRows(
            entities_of(batch.column(self.entity)), times_of(batch.column(self.time)), points, fields, problems
        )

    def _points(self, batch: pa.RecordBatch, problems: Problems) -> tuple[Floats, Floats]:
        if not self.point:
            return np.zeros(batch.num_rows), np.zeros(batch.num_rows)
        x, y = (to_numbers(batch.column(at), self.names[at], problems) for at in self.point)
        for row, reason in enumerate(SPACES[self.space].bad_points(x, y)):
            if reason is not None:
                problems.setdefault(row, str(reason))
        return x, y

    def error(self, batch: pa.RecordBatch, problems: Problems, hint: str) -> BadRowError:
        """The error for the first bad row of a batch."""
        row = min(problems)
        content = describe_row(self.names, batch.columns[: len(self.names)], row)
        return BadRowError(f"{problems[row]}: {content}", where=self.side, hint=hint)


class TimedPlan(NamedTuple):
    """The frame that tasks get, the fields of the columns that are passed on, what reads it, and the type of times."""

    frame: DataFrame
    passed: tuple[StructField, ...]
    reader: TimedReader
    time: DataType


def plan_timed(
    frame: DataFrame, side: str, names: TimedNames, passed: Sequence[str], needs: Needs, space: str = "geographic"
) -> TimedPlan:
    """Raises InputError for columns that are missing or have a wrong type, and for those that conditions need."""
    sent = SentColumns(frame, side, passed)
    entity = sent.position(names.entity, ENTITY, hint="name the column of the entity")
    time = sent.position(names.time, TIME, hint="pass time=")
    point = tuple(sent.position(name, NUMBER, hint="pass x= and y=") for name in names.point or ())
    id = None if names.id is None else sent.position(names.id, ID, hint="pass id=")
    fields = plan_fields(sent, names.readings, names.attributes, needs)
    reader = TimedReader(side, sent.names, entity, time, point, id, fields, space)
    return TimedPlan(sent.select(), sent.fields, reader, sent.type_of(names.time))


def common_time(one: DataType, other: DataType) -> DataType | None:
    """The type of times that are compared with each other; None if they cannot be."""
    if isinstance(one, IntegralType) and isinstance(other, IntegralType):
        return LongType()
    return one if one == other else None


def entities_of(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def times_of(column: pa.Array) -> pa.Array:
    """Times as whole numbers: microseconds of timestamps."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return pc.cast(column, pa.int64())
