"""Subscriptions as rows of a data frame: which columns are read, and how they are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.circles import Extents, boxes_around
from roamcast.match.index.polygons import Polygons
from roamcast.match.port import Subscriptions
from roamcast.places import Places
from roamcast.space import SPACES, Floats
from roamcast.spark.rows.columns import (
    GEOMETRY,
    ID,
    NUMBER,
    TERMS,
    TEXT,
    SentColumns,
    check_ids,
    combine,
    no_terms,
    to_numbers,
    to_terms,
)
from roamcast.spark.rows.conditions import condition_table
from roamcast.spark.rows.geometry import read_regions
from roamcast.spark.rows.geometry_types import check_geometry, mark_geometry
from roamcast.spark.rows.lines import CORRUPT, TextLines
from roamcast.spark.rows.problems import PROBLEM, Problems, good_rows, problem_column, quote_value
from roamcast.spark.rows.queries import read_queries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

__all__ = [
    "BOX",
    "BoxNames",
    "CheckedSubscriptions",
    "CircleNames",
    "SubscriptionColumnNames",
    "SubscriptionReader",
    "check_repeats",
    "plan_subscriptions",
]

BoxNames: TypeAlias = tuple[str, str, str, str]
CircleNames: TypeAlias = tuple[str, str, str]
BOX: Final[BoxNames] = ("min_x", "min_y", "max_x", "max_y")

_SIDE: Final = "subscriptions"
_NO_TERMS: Final = "pass terms=, or terms=None if subscriptions have none"
_NO_BOX: Final = "pass box=, or box=None for subscriptions without a region"


class SubscriptionColumnNames(NamedTuple):
    """The columns that fields of subscriptions are read from; None: subscriptions do not have the field.

    A column `lacl` of queries takes the place of all others. With a box and a geometry, the box is that of the
    geometry, or the region of a row that has no geometry.
    """

    box: BoxNames | None = BOX
    terms: str | None = "terms"
    id: str | None = None
    geometry: str | None = None
    lines: TextLines | None = None
    circle: CircleNames | None = None
    lacl: str | None = None

    @property
    def consumed(self) -> tuple[str, ...]:
        """The columns that describe what a subscription matches."""
        return (*(self.box or ()), *(self.circle or ()), *filter(None, (self.terms, self.geometry, self.lacl)))


class CheckedSubscriptions(NamedTuple):
    """Subscriptions, the polygons of those that are not boxes, and by row the columns `kept` for the result.

    `conditions`, a row for each, are there instead of polygons, if any are given. `bad_rows` were left out: all
    columns, and the problem.
    """

    subscriptions: Subscriptions
    polygons: Polygons | None
    kept: pa.Table
    bad_rows: pa.Table
    conditions: pa.Table | None = None


class SubscriptionReader(NamedTuple):
    """Reads subscriptions from a table with the columns of `plan_subscriptions`: fields are at these positions.

    The first columns, as many as there are `fields`, are kept for the result.
    """

    space: str
    fields: tuple[StructField, ...]
    names: tuple[str, ...]
    box: tuple[int, ...]
    terms: int | None
    id: int | None
    geometry: int | None = None
    lines: TextLines | None = None
    circle: tuple[int, ...] = ()
    lacl: int | None = None

    def read(self, table: pa.Table, places: Places | None = None) -> CheckedSubscriptions:
        """Read and check all rows. Queries can name these places."""
        problems: Problems = {}
        if self.lines is not None:
            self.lines.check(table, self.names, problems)
        if self.id is not None:
            check_ids(combine(table.column(self.id)), self.names[self.id], problems)
        terms, polygons, conditions = no_terms(table.num_rows), None, None
        if self.lacl is not None:
            column = combine(table.column(self.lacl))
            queries = read_queries(column, self.names[self.lacl], SPACES[self.space], places, problems)
            boxes, terms, conditions = queries
        elif self.circle:
            boxes, conditions = self._circles(table, problems)
        else:
            boxes, polygons = self._regions(table, problems)
        if self.terms is not None:
            terms = to_terms(combine(table.column(self.terms)), problems)
        if self.id is not None:
            check_repeats(combine(table.column(self.id)), self.names[self.id], problems)
        kept = table.select(range(len(self.fields))).rename_columns([field.name for field in self.fields])
        bad = sorted(problems)
        bad_rows = table.take(pa.array(bad, pa.int64())).rename_columns(self.names)
        bad_rows = bad_rows.append_column(PROBLEM, problem_column(problems, bad))
        if bad:
            good = good_rows(problems, table.num_rows)
            boxes, terms, kept = boxes[good], terms.filter(pa.array(good)), kept.filter(pa.array(good))
            polygons = polygons and Polygons.from_lists(polygons.lists().filter(pa.array(good)))
            conditions = conditions and conditions.filter(pa.array(good))
        min_x, min_y, max_x, max_y = boxes.T
        subscriptions = Subscriptions(min_x, min_y, max_x, max_y, terms)
        return CheckedSubscriptions(subscriptions, polygons, kept, bad_rows, conditions)

    def _circles(self, table: pa.Table, problems: Problems) -> tuple[Floats, pa.Table]:
        """A box around each circle, and the circles as conditions."""
        columns = (to_numbers(combine(table.column(at)), self.names[at], problems) for at in self.circle)
        x, y, radius = (column.copy() for column in columns)
        space = SPACES[self.space]
        for row, reason in enumerate(space.bad_points(x, y)):
            if reason is not None:
                problems.setdefault(row, str(reason))
        is_radius = (radius >= 0) & (radius < np.inf)
        for row in np.flatnonzero(~is_radius).tolist():
            problems.setdefault(row, f"{self.names[self.circle[2]]} must be 0 or more, not {radius[row]:g}")
        bad = list(problems)
        x[bad] = y[bad] = radius[bad] = 0
        boxes = boxes_around(space, x, Extents.of(space, x, y, radius))
        circles = np.stack([x, y, radius], axis=1).tolist()
        return boxes, condition_table(self.space, circles)

    def _regions(self, table: pa.Table, problems: Problems) -> tuple[Floats, Polygons | None]:
        """The box of each row, and its polygon if that is not the box."""
        if self.geometry is None:
            return self._boxes(table, problems), None
        name, column = self.names[self.geometry], combine(table.column(self.geometry))
        regions = read_regions(column, SPACES[self.space], problems)
        is_missing = column.is_null().to_numpy(zero_copy_only=False)
        if not self.box:
            for row in np.flatnonzero(is_missing).tolist():
                problems.setdefault(row, f"{name} is missing")
            return regions.box, regions.polygons
        of_boxes: Problems = {}
        boxes = self._boxes(table, of_boxes)
        for row, problem in of_boxes.items():
            if is_missing[row]:
                problems.setdefault(row, problem)
        differ = ~is_missing & ~np.isnan(boxes).all(axis=1) & (boxes != regions.box).any(axis=1)
        for row in np.flatnonzero(differ).tolist():
            if difference := _difference(boxes[row], regions.box[row]):
                problems.setdefault(row, difference)
        return np.where(is_missing[:, np.newaxis], boxes, regions.box), regions.polygons

    def _boxes(self, table: pa.Table, problems: Problems) -> Floats:
        if not self.box:
            return np.tile([-np.inf, -np.inf, np.inf, np.inf], (table.num_rows, 1))
        sides = [to_numbers(combine(table.column(at)), self.names[at], problems) for at in self.box]
        reasons = SPACES[self.space].bad_boxes(*sides)
        for row in np.flatnonzero(reasons):
            problems.setdefault(int(row), reasons[row])
        return np.stack(sides, axis=1)


def plan_subscriptions(
    frame: DataFrame, names: SubscriptionColumnNames, columns: Sequence[str] | None, space: str
) -> tuple[DataFrame, SubscriptionReader]:
    """The frame with the columns to read, and what reads them.

    `columns` are kept for the result; None: the id, or without one all that do not describe what a subscription
    matches. Raises InputError for columns that are missing or have a wrong type.
    """
    if columns is None:
        consumed = {name.lower() for name in names.consumed}
        columns = [names.id] if names.id else [name for name in frame.columns if name.lower() not in consumed]
    sent = SentColumns(frame, _SIDE, columns)
    box = tuple(sent.position(name, NUMBER, hint=_NO_BOX) for name in names.box or ())
    geometry = None if names.geometry is None else sent.position(names.geometry, GEOMETRY, hint="pass geometry=")
    fields = sent.fields
    if geometry is not None:
        check_geometry(sent.field(geometry), _SIDE, space, areas=True)
        fields = mark_geometry(fields, geometry, space)
    circle = tuple(sent.position(name, NUMBER, hint="pass circle=") for name in names.circle or ())
    lacl = None if names.lacl is None else sent.position(names.lacl, TEXT, hint="pass lacl=")
    terms = None if names.terms is None else sent.position(names.terms, TERMS, hint=_NO_TERMS)
    if names.lines is not None:
        sent.position(CORRUPT, TEXT, hint="")
    id = None if names.id is None else sent.position(names.id, ID, hint="pass id=")
    reader = SubscriptionReader(space, fields, sent.names, box, terms, id, geometry, names.lines, circle, lacl)
    return sent.select(), reader


def _difference(box: Floats, of_geometry: Floats) -> str | None:
    """What is wrong with a bbox that is not that of its geometry. It says how the geometry is meant.

    One that is split at the antimeridian may have the bbox of all longitudes.
    """
    west, south, east, north = of_geometry
    if west > east and tuple(box) == (-180, south, 180, north):
        return None
    instead = "split the geometry at the antimeridian" if box[0] > box[2] else "omit it"
    return f"the bbox differs from the geometry; {instead}, or give the bbox alone"


def check_repeats(ids: pa.Array, name: str, problems: Problems) -> None:
    """Record rows whose id is that of an earlier row without a problem."""
    codes = ids.dictionary_encode().indices
    if len(pc.unique(codes)) == len(ids):
        return
    good = np.flatnonzero(good_rows(problems, len(ids)))
    code = codes.to_numpy(zero_copy_only=False)[good]
    order = np.argsort(code, kind="stable")
    for row in good[order[1:][np.diff(code[order]) == 0]].tolist():
        problems[row] = f"{name} {quote_value(ids[row].as_py())} is also that of an earlier row"
