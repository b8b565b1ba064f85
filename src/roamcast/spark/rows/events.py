"""Events as rows of a data frame: which columns are sent to tasks, and how these check them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import InputError
from roamcast.match.port import Events
from roamcast.space import SPACES, Floats, Space
from roamcast.spark.rows.columns import (
    GEOMETRY,
    ID,
    NUMBER,
    TERMS,
    TEXT,
    SentColumns,
    check_ids,
    no_terms,
    to_numbers,
    to_terms,
)
from roamcast.spark.rows.conditions import NO_NEEDS, Needs
from roamcast.spark.rows.event_fields import (
    NO_EVENT_FIELDS,
    NO_FIELDS,
    EventFields,
    FieldNames,
    FieldReader,
    plan_fields,
)
from roamcast.spark.rows.geometry import read_points
from roamcast.spark.rows.geometry_types import check_geometry, mark_geometry
from roamcast.spark.rows.lines import CORRUPT, TextLines
from roamcast.spark.rows.problems import Problems, good_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

__all__ = ["CheckedEvents", "EventColumnNames", "EventReader", "plan_events"]

_SIDE: Final = "events"
_NO_TERMS: Final = "pass terms=, or terms=None if events have none"


class EventColumnNames(NamedTuple):
    """The columns that fields of events are read from; None: events do not have the field.

    A `geometry` takes the place of x and y.
    """

    x: str = "x"
    y: str = "y"
    terms: str | None = "terms"
    id: str | None = None
    geometry: str | None = None
    lines: TextLines | None = None
    readings: FieldNames = None
    attributes: FieldNames = None


class CheckedEvents(NamedTuple):
    """A batch of events. `passed` has the columns for the result; of rows with a problem, `points` has anything.

    `fields` has the readings and attributes that conditions need.
    """

    points: Events
    passed: pa.RecordBatch
    problems: Problems
    fields: EventFields = NO_EVENT_FIELDS

    def without_bad(self) -> CheckedEvents:
        good = good_rows(self.problems, self.passed.num_rows)
        mask = pa.array(good)
        points = Events(self.points.x[good], self.points.y[good], self.points.terms.filter(mask))
        return CheckedEvents(points, self.passed.filter(mask), {}, self.fields.filter(mask))


class EventReader(NamedTuple):
    """Reads events from the batches of a frame that `plan_events` has made: fields are at these positions.

    The first `passed` columns are those for the result.
    """

    space: str
    passed: int
    names: tuple[str, ...]
    point: tuple[int, ...]
    terms: int | None
    id: int | None
    lines: TextLines | None = None
    fields: FieldReader = NO_FIELDS

    def read(self, batch: pa.RecordBatch) -> CheckedEvents:
        problems: Problems = {}
        if self.lines is not None:
            self.lines.check(batch, self.names, problems)
        if self.id is not None:
            check_ids(batch.column(self.id), self.names[self.id], problems)
        space = SPACES[self.space]
        x, y = self._points(batch, space, problems)
        for row in np.flatnonzero(~space.valid_points(x, y)):
            problems.setdefault(int(row), str(space.bad_points(x[row : row + 1], y[row : row + 1])[0]))
        terms = no_terms(batch.num_rows) if self.terms is None else to_terms(batch.column(self.terms), problems)
        fields = self.fields.read(batch, self.names, problems)
        return CheckedEvents(Events(x, y, terms), batch.select(range(self.passed)), problems, fields)

    def _points(self, batch: pa.RecordBatch, space: Space, problems: Problems) -> tuple[Floats, Floats]:
        if len(self.point) == 2:
            x, y = (to_numbers(batch.column(at), self.names[at], problems) for at in self.point)
            return x, y
        (at,) = self.point
        x, y = read_points(batch.column(at), space, problems)
        for row in np.flatnonzero(pc.is_null(batch.column(at)).to_numpy(zero_copy_only=False)):
            problems.setdefault(int(row), f"{self.names[at]} is missing")
        return x, y


def plan_events(
    frame: DataFrame, names: EventColumnNames, passed: Sequence[str], space: str, needs: Needs = NO_NEEDS
) -> tuple[DataFrame, tuple[StructField, ...], EventReader]:
    """The frame that tasks get, the fields of its columns `passed` on to the result, and what reads it.

    Raises InputError for columns that are missing or have a wrong type, and for those that conditions need.
    """
    sent = SentColumns(frame, _SIDE, passed)
    fields: tuple[StructField, ...] = sent.fields
    point: tuple[int, ...]
    if names.geometry is not None:
        point = (sent.position(names.geometry, GEOMETRY, hint="pass geometry="),)
        check_geometry(sent.field(point[0]), _SIDE, space, areas=False)
        fields = mark_geometry(fields, point[0], space)
    else:
        point = sent.position(names.x, NUMBER, hint="pass x="), sent.position(names.y, NUMBER, hint="pass y=")
    if names.terms is None and needs.terms:
        raise InputError("subscriptions test &terms, but events have none", where=_SIDE, hint="pass terms=")
    terms = None if names.terms is None else sent.position(names.terms, TERMS, hint=_NO_TERMS)
    if names.lines is not None:
        sent.position(CORRUPT, TEXT, hint="")
    id = None if names.id is None else sent.position(names.id, ID, hint="pass id=")
    untyped = names.lines is not None and names.lines.format == "csv"
    further = plan_fields(sent, names.readings, names.attributes, needs, untyped=untyped)
    reader = EventReader(space, len(sent.fields), sent.names, point, terms, id, names.lines, further)
    return sent.select(), fields, reader
