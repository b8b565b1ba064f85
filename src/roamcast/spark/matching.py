"""`match`: a frame of events and compiled subscriptions to a frame of matches."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StringType, StructField, StructType

from roamcast.errors import InputError
from roamcast.spark.columns import check_names
from roamcast.spark.compiled import CompiledSubscriptions, compile, fields_of, files_of
from roamcast.spark.events import EventColumnNames, plan_events
from roamcast.spark.problems import PROBLEM, OnBadRows, check_choice
from roamcast.spark.tasks import MatchTask, ResultColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["match"]


def match(
    events: DataFrame,
    subscriptions: CompiledSubscriptions | DataFrame,
    *,
    x: str = "x",
    y: str = "y",
    terms: str | None = "terms",
    id: str | None = None,
    columns: Sequence[str] | None = None,
    on_bad_rows: OnBadRows = "fail",
) -> DataFrame:
    """Return a row for each match of an event and a subscription, in no particular order.

    Events are a batch or a stream. `x`, `y` and `terms` name their columns, `terms=None`: they have none. Fields of
    nested columns are written `position.lon`. Terms are an array of texts, or a text with `;` between terms.

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
        known = None if columns is None else [name for name in columns if name in subscriptions.columns]
        subscriptions = compile(subscriptions, columns=known)
    chosen = _choose(columns, [id] if id else events.columns, events.columns, subscriptions.columns)
    of_events = [name for of_event, name in chosen if of_event]
    selected, fields, reader = plan_events(events, EventColumnNames(x, y, terms, id), of_events, subscriptions.space)
    sent = iter(enumerate(fields))
    kept = {field.name: (at, field) for at, field in enumerate(fields_of(subscriptions))}
    result: list[ResultColumn] = []
    schema = StructType()
    for of_event, name in chosen:
        at, field = next(sent) if of_event else kept[name]
        result.append(ResultColumn(field.name, of_event, at))
        schema.add(StructField(field.name, field.dataType, True, field.metadata))
    if on_bad_rows == "collect":
        schema.add(PROBLEM, StringType())
    check_names(schema.names, "matches")
    task = MatchTask(reader, files_of(subscriptions), tuple(result), on_bad_rows)
    return selected.mapInArrow(lambda batches: task.run(batches), schema)


def _choose(
    columns: Sequence[str] | None, default: Sequence[str], of_events: Sequence[str], of_subscriptions: Sequence[str]
) -> list[tuple[bool, str]]:
    """The columns of the result: whether each is one of events, and its name there. Raises InputError."""
    if columns is None:
        return [*((True, name) for name in default), *((False, name) for name in of_subscriptions)]
    if not columns:
        raise InputError("no columns", where="columns", hint="name at least one")
    for name in columns:
        if name in of_events and name in of_subscriptions:
            raise InputError(f"both sides have a column {name!r}", where="columns", hint="rename one of them")
        if name not in (*of_events, *of_subscriptions) and "." not in name:
            close = difflib.get_close_matches(name, (*of_events, *of_subscriptions), n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            hint += f"columns of events: {', '.join(of_events)}; of subscriptions: {', '.join(of_subscriptions)}"
            raise InputError(f"no column {name!r}", where="columns", hint=hint)
    return [(name not in of_subscriptions, name) for name in columns]
