"""Subscriptions as rows of a data frame: which columns are read, and how they are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.port import Subscriptions
from roamcast.space import SPACES, Floats
from roamcast.spark.columns import (
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
from roamcast.spark.lines import CORRUPT, TextLines
from roamcast.spark.problems import PROBLEM, Problems, good_rows, problem_column, quote_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

__all__ = [
    "BOX",
    "BoxNames",
    "CheckedSubscriptions",
    "SubscriptionColumnNames",
    "SubscriptionReader",
    "plan_subscriptions",
]

BoxNames: TypeAlias = tuple[str, str, str, str]
BOX: Final[BoxNames] = ("min_x", "min_y", "max_x", "max_y")

_SIDE: Final = "subscriptions"
_NO_TERMS: Final = "pass terms=, or terms=None if subscriptions have none"
_NO_BOX: Final = "pass box=, or box=None for subscriptions without a region"


class SubscriptionColumnNames(NamedTuple):
    """The columns that fields of subscriptions are read from; None: subscriptions do not have the field."""

    box: BoxNames | None = BOX
    terms: str | None = "terms"
    id: str | None = None
    lines: TextLines | None = None

    @property
    def consumed(self) -> tuple[str, ...]:
        """The columns that describe what a subscription matches."""
        return (*(self.box or ()), *([self.terms] if self.terms else []))


class CheckedSubscriptions(NamedTuple):
    """Subscriptions, and by row the columns `kept` for the result.

    `bad_rows` were left out: all columns, and the problem.
    """

    subscriptions: Subscriptions
    kept: pa.Table
    bad_rows: pa.Table


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
    lines: TextLines | None = None

    def read(self, table: pa.Table) -> CheckedSubscriptions:
        problems: Problems = {}
        if self.lines is not None:
            self.lines.check(table, self.names, problems)
        if self.id is not None:
            check_ids(combine(table.column(self.id)), self.names[self.id], problems)
        min_x, min_y, max_x, max_y = self._boxes(table, problems)
        terms = no_terms(table.num_rows)
        if self.terms is not None:
            terms = to_terms(combine(table.column(self.terms)), problems)
        if self.id is not None:
            _check_repeats(combine(table.column(self.id)), self.names[self.id], problems)
        kept = table.select(range(len(self.fields))).rename_columns([field.name for field in self.fields])
        bad = sorted(problems)
        bad_rows = (
            table.take(pa.array(bad, pa.int64()))
            .rename_columns(self.names)
            .append_column(PROBLEM, problem_column(problems, bad))
        )
        if bad:
            good = good_rows(problems, table.num_rows)
            min_x, min_y, max_x, max_y = (side[good] for side in (min_x, min_y, max_x, max_y))
            terms, kept = (rows.filter(pa.array(good)) for rows in (terms, kept))
        return CheckedSubscriptions(Subscriptions(min_x, min_y, max_x, max_y, terms), kept, bad_rows)

    def _boxes(self, table: pa.Table, problems: Problems) -> Sequence[Floats]:
        if not self.box:
            lowest = np.full(table.num_rows, -np.inf)
            return lowest, lowest, -lowest, -lowest
        sides = [to_numbers(combine(table.column(at)), self.names[at], problems) for at in self.box]
        reasons = SPACES[self.space].bad_boxes(*sides)
        for row in np.flatnonzero(reasons):
            problems.setdefault(int(row), reasons[row])
        return sides


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
    terms = None if names.terms is None else sent.position(names.terms, TERMS, hint=_NO_TERMS)
    if names.lines is not None:
        sent.position(CORRUPT, TEXT, hint="")
    id = None if names.id is None else sent.position(names.id, ID, hint="pass id=")
    return sent.select(), SubscriptionReader(space, sent.fields, sent.names, box, terms, id, names.lines)


def _check_repeats(ids: pa.Array, name: str, problems: Problems) -> None:
    """Record rows whose id is that of an earlier row without a problem."""
    codes = ids.dictionary_encode().indices
    if len(pc.unique(codes)) == len(ids):
        return
    good = np.flatnonzero(good_rows(problems, len(ids)))
    code = codes.to_numpy(zero_copy_only=False)[good]
    order = np.argsort(code, kind="stable")
    for row in good[order[1:][np.diff(code[order]) == 0]].tolist():
        problems[row] = f"{name} {quote_value(ids[row].as_py())} is also that of an earlier row"
