"""`bindings`: which source each subscription was bound to when, from tracks of sources and subscribers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, DataType, StringType, StructField, StructType

from roamcast.bind.tracks import Fix, PastBinding, TrackReplay
from roamcast.errors import InputError
from roamcast.journal.bodies import encode_condition
from roamcast.lacl import Query
from roamcast.pipeline.tasks.event_columns import parse_attributes
from roamcast.places import Places
from roamcast.space import SPACES
from roamcast.spark.compiled import SpaceName, first_problem
from roamcast.spark.rows.arguments import check_column_list, check_column_names, check_frame
from roamcast.spark.rows.columns import ID, TEXT, SentColumns, check_ids, check_names, combine
from roamcast.spark.rows.conditions import NO_NEEDS, Needs, needs_of_conditions
from roamcast.spark.rows.event_fields import FieldNames, attribute_texts
from roamcast.spark.rows.place_rows import PlacesFrom, read_places
from roamcast.spark.rows.problems import PROBLEM, Problems, check_choice, good_rows, problem_column
from roamcast.spark.rows.queries import parse_queries
from roamcast.spark.rows.subscriptions import check_repeats
from roamcast.spark.rows.timed import ENTITY, TimedNames, TimedPlan, TimedReader, common_time, entities_of, plan_timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BINDING_COLUMNS", "ON", "Bindings", "bindings", "frame_of", "needs_of_bindings"]

BINDING_COLUMNS: Final = ("source", "begin", "end", "free_choice")
ON: Final = "_on"

Batches: TypeAlias = Iterator[pa.RecordBatch]

_SUBSCRIPTIONS: Final = "subscriptions"
_TRACK: Final = "_kind int, _entity string, _time long, _x double, _y double, _attributes string"
_ORDER: Final = ("_time", "_kind", "_entity", "_x", "_y", "_attributes")
_SOURCE, _SUBSCRIBER = 0, 1
_ROWS_OUT: Final = 10_000


class Bindings:
    """Which source each subscription was bound to when. Made by `bindings`, for `match`.

    `frame` has the columns of subscriptions that matches can have, then `source`, `begin` and `end`: the binding holds
    from `begin` on and before `end`, which is null if the tracks end before. `free_choice`: any other source within
    reach would have been as good (`anyof()`). It is computed when it is used; `persist` it to use it several times.

    `count` is how many subscriptions there are, `bad_rows` are those that were left out, with the `problem` of each.
    """

    count: int
    bad_rows: pa.Table

    def __init__(self, frame: DataFrame, needs: Needs, count: int, bad_rows: pa.Table) -> None:
        self._frame, self._needs, self.count, self.bad_rows = frame, needs, count, bad_rows

    @property
    def frame(self) -> DataFrame:
        return self._frame.drop(ON)

    @property
    def columns(self) -> list[str]:
        """The columns that matches can have."""
        return [name for name in self._frame.columns if name not in (*BINDING_COLUMNS, ON)]

    def persist(self) -> Bindings:
        """Let Spark keep the bindings once they have been computed, until `unpersist`."""
        self._frame.persist()
        return self

    def unpersist(self) -> Bindings:
        """Let Spark free what it keeps."""
        self._frame.unpersist()
        return self


def frame_of(bound: Bindings) -> DataFrame:
    """With the encoded condition on readings in the column ON."""
    return bound._frame


def needs_of_bindings(bound: Bindings) -> Needs:
    """What conditions need of events."""
    return bound._needs


def bindings(
    subscriptions: DataFrame,
    sources: DataFrame,
    subscribers: DataFrame,
    *,
    lacl: str = "query",
    id: str | None = None,
    columns: Sequence[str] | None = None,
    source: str = "source",
    subscriber: str = "subscriber",
    time: str = "time",
    x: str = "x",
    y: str = "y",
    attributes: FieldNames = None,
    subscriber_attributes: FieldNames = None,
    places: PlacesFrom = None,
    space: SpaceName = "geographic",
    on_bad_rows: Literal["fail", "skip"] = "fail",
) -> Bindings:
    """Replay tracks, and return which source each subscription was bound to when.

    `subscriptions` have a query (`nearest`, `anyof()`, `nearof()` or `remoteof()`) and a `subscriber`. `sources` and
    `subscribers` are tracks: rows that say where one of them was at a `time`, a timestamp or a whole number, with the
    attributes it had from then on (as in `match`; `subscriber_attributes` for Life-control). Rows of one time take
    effect together. A source is known from its first row on, and stays where it was last. Subscriptions begin before
    the tracks; those whose subscriber has no track are bound to nothing.

    Raises InputError for columns that are missing or have a wrong type, and for bad subscriptions unless `on_bad_rows`
    is "skip". Bad rows of tracks let the tasks fail, or are left out.
    """
    for argument, frame in (("subscriptions", subscriptions), ("sources", sources), ("subscribers", subscribers)):
        check_frame(frame, argument)
        if frame.isStreaming:
            hint = "pass a batch; only events may be a stream"
            raise InputError(f"{argument} are a stream", where=argument, hint=hint)
    check_column_names(lacl=lacl, id=id, source=source, subscriber=subscriber, time=time, x=x, y=y)
    check_column_list(columns, "columns")
    check_choice("space", space, tuple(SPACES))
    check_choice("on_bad_rows", on_bad_rows, ("fail", "skip"))
    reader = _plan_subscriptions(subscriptions, lacl, subscriber, id, columns)
    of_tracks = (
        (sources, "sources", TimedNames(source, time, (x, y), attributes=attributes), "&"),
        (subscribers, "subscribers", TimedNames(subscriber, time, (x, y), attributes=subscriber_attributes), "#"),
    )
    # Errors of columns are raised before anything is read.
    times = [plan_timed(frame, side, names, (), NO_NEEDS, space).time for frame, side, names, _ in of_tracks]
    kind = _common_time(times[0], times[1], time)
    schema = StructType(
        [
            *reader.sent.fields, StructField("source", StringType()), StructField("begin", kind),
            StructField("end", kind), StructField("free_choice", BooleanType()), StructField(ON, StringType()),
        ]
    )  # fmt: skip
    check_names(schema.names, "bindings")
    known_places = read_places(places, space)
    read = reader.read(space, known_places)
    if read.bad_rows.num_rows and on_bad_rows == "fail":
        raise first_problem(read.bad_rows, len(read.queries) + read.bad_rows.num_rows)
    queries = list(filter(None, read.queries))
    of_sources = [query.source_condition for query in queries if query.source_condition is not None]
    of_subscribers = [query.life_control for query in queries if query.life_control is not None]
    plans = [
        plan_timed(frame, side, names, (), needs_of_conditions([], conditions, sigil), space)
        for (frame, side, names, sigil), conditions in zip(of_tracks, (of_sources, of_subscribers), strict=True)
    ]
    both = [_track_rows(plan, side, on_bad_rows) for side, plan in enumerate(plans)]
    tracks = both[0].union(both[1]).repartition(1).sortWithinPartitions(*_ORDER)
    task = BindTask(
        read.kept, tuple(read.owners), tuple(queries), space, known_places, to_arrow_type(kind, timezone="UTC")
    )
    frame = tracks.mapInArrow(lambda batches: task.run(batches), schema)
    on = [query.on for query in queries if query.on is not None]
    return Bindings(frame, needs_of_conditions(on, []), len(queries), read.bad_rows)


def _common_time(of_sources: DataType, of_subscribers: DataType, time: str) -> DataType:
    kind = common_time(of_sources, of_subscribers)
    if kind is None:
        types = f"{of_sources.simpleString()} of sources, and {of_subscribers.simpleString()} of subscribers"
        raise InputError(f"{time!r} is {types}", where="tracks", hint="cast one of them")
    return kind


class _ReadSubscriptions(NamedTuple):
    kept: pa.Table
    owners: list[str]
    queries: list[Query | None]
    bad_rows: pa.Table


class _SubscriptionReader(NamedTuple):
    """Reads queries, subscribers and ids from these columns."""

    sent: SentColumns
    query: int
    subscriber: int
    id: int | None

    def read(self, space: str, places: Places | None) -> _ReadSubscriptions:
        sent, table = self.sent, self.sent.select().toArrow()
        query, owner = (combine(table.column(at)) for at in (self.query, self.subscriber))
        problems: Problems = {}
        check_ids(owner, sent.names[self.subscriber], problems)
        ids = None if self.id is None else combine(table.column(self.id))
        if self.id is not None:
            check_ids(ids, sent.names[self.id], problems)
        queries = parse_queries(query, sent.names[self.query], SPACES[space], places, problems)
        if self.id is not None:
            check_repeats(ids, sent.names[self.id], problems)
        bad, good = sorted(problems), good_rows(problems, table.num_rows)
        bad_rows = table.take(pa.array(bad, pa.int64())).rename_columns(list(sent.names))
        kept = table.select(range(len(sent.fields))).rename_columns([field.name for field in sent.fields])
        return _ReadSubscriptions(
            kept.filter(pa.array(good)).combine_chunks(),
            entities_of(owner).filter(pa.array(good)).to_pylist(),
            [query for query, is_good in zip(queries, good.tolist(), strict=True) if is_good],
            bad_rows.append_column(PROBLEM, problem_column(problems, bad)),
        )


def _plan_subscriptions(
    frame: DataFrame, lacl: str, subscriber: str, id: str | None, columns: Sequence[str] | None
) -> _SubscriptionReader:
    if columns is None:
        columns = [id] if id else [name for name in frame.columns if name.lower() != lacl.lower()]
    sent = SentColumns(frame, _SUBSCRIPTIONS, columns)
    return _SubscriptionReader(
        sent,
        sent.position(lacl, TEXT, hint="pass lacl="),
        sent.position(subscriber, ENTITY, hint="pass subscriber="),
        sent.position(id, ID, hint="pass id=") if id else None,
    )


def _track_rows(plan: TimedPlan, kind: int, on_bad_rows: str) -> DataFrame:
    reader = plan.reader
    return plan.frame.mapInArrow(lambda batches: _check_tracks(reader, kind, on_bad_rows, batches), _TRACK)


def _check_tracks(reader: TimedReader, kind: int, on_bad_rows: str, batches: Batches) -> Batches:
    for batch in batches:
        rows = reader.read(batch)
        if rows.problems and on_bad_rows == "fail":
            raise reader.error(batch, rows.problems, "fix the row, or pass on_bad_rows='skip'")
        good = pa.array(good_rows(rows.problems, batch.num_rows))
        columns = [
            pa.array(np.full(batch.num_rows, kind, np.int32)), rows.entity, rows.time, pa.array(rows.points.x),
            pa.array(rows.points.y), attribute_texts(rows.points, rows.fields),
        ]  # fmt: skip
        yield pa.RecordBatch.from_arrays(columns, [part.split()[0] for part in _TRACK.split(", ")]).filter(good)


class BindTask(NamedTuple):
    """Replays all tracks in the order of time. Subscriptions are given by the rows kept, their owners and queries.

    `time` is the type of times in the result.
    """

    kept: pa.Table
    owners: tuple[str, ...]
    queries: tuple[Query, ...]
    space: str
    places: Places | None
    time: pa.DataType

    def run(self, batches: Batches) -> Batches:
        """The function for mapInArrow."""
        named = ((str(row), *each) for row, each in enumerate(zip(self.owners, self.queries, strict=True)))
        replay = TrackReplay(named, SPACES[self.space], self.places)
        ended: list[PastBinding] = []
        for now, rows in groupby(_rows(batches), key=itemgetter(1)):
            fixes: tuple[list[Fix], list[Fix]] = ([], [])
            for kind, _, entity, x, y, attributes in rows:
                fixes[kind].append(Fix(entity, x, y, parse_attributes(attributes)))
            ended += replay.step(now, fixes[_SOURCE], fixes[_SUBSCRIBER])
            if len(ended) >= _ROWS_OUT:
                yield self._batch(ended)
                ended = []
        yield self._batch([*ended, *replay.finish()])

    def _batch(self, past: Sequence[PastBinding]) -> pa.RecordBatch:
        rows = [int(each.subscription) for each in past]
        queries = [self.queries[row] for row in rows]
        kept = self.kept.take(pa.array(rows, pa.int64()))
        columns = [
            *map(combine, kept.columns),
            pa.array([each.source for each in past], pa.string()),
            *(pa.array([each[at] for each in past], pa.int64()).cast(self.time) for at in (2, 3)),
            pa.array([query.select.function == "anyof" for query in queries], pa.bool_()),
            pa.array([None if query.on is None else encode_condition(query.on) for query in queries], pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, [*kept.column_names, *BINDING_COLUMNS, ON])


_Row: TypeAlias = tuple[int, int, str, float, float, str]


def _rows(batches: Batches) -> Iterator[_Row]:
    for batch in batches:
        kind, entity, time, x, y, attributes = (column.to_pylist() for column in batch.columns)
        yield from zip(kind, time, entity, x, y, attributes, strict=True)
