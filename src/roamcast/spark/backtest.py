"""`backtest`: the letters that many subscriptions would have brought, by tasks that read the files of an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import orjson
import pyarrow as pa

from roamcast.archive.files import TRACKS, ArchiveFile
from roamcast.archive.reader import ReadPlan, Tracks, open_archive, read_file
from roamcast.archive.versions import Erasure
from roamcast.backtest.evaluate import COLUMNS, FOUND_SCHEMA, Prepared, find, last_events, make_letters, prepare
from roamcast.backtest.plan import find_node
from roamcast.backtest.request import Request, Subscriber
from roamcast.backtest.stream import Stream, open_stream
from roamcast.errors import InputError
from roamcast.pipeline.schemas import spark_schema
from roamcast.pipeline.tasks.memory import exclude_modules_from_collection
from roamcast.storage.location import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["backtest"]

Batches: TypeAlias = Iterator[pa.RecordBatch]

_TASKS_PER_CORE: Final = 4
_TASK_SCHEMA: Final = FOUND_SCHEMA.append(pa.field("request", pa.int64()))
_RESULT_SCHEMA: Final = pa.schema(
    [
        pa.field("subscription", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("why", pa.string()),
        pa.field("event", pa.string()),
        pa.field("approximate", pa.list_(pa.string())),
    ]
)


class _Work(NamedTuple):
    """What tasks need: the archive, its files with events, and the backtests. `earlier` has the last events before the
    beginning that each of these may need.
    """

    storage: str
    erasures: tuple[Erasure, ...]
    files: tuple[ArchiveFile, ...]
    prepared: tuple[Prepared, ...]
    earlier: Mapping[int, pa.Table]


def backtest(
    spark: SparkSession,
    archive: str | Path,
    subscriptions: str | Mapping[str, str] | DataFrame,
    start: datetime,
    end: datetime,
    *,
    subscriber: str | None = None,
    at: tuple[float, float] | None = None,
    node: str | None = None,
) -> DataFrame:
    """The letters that subscriptions would have brought from `start` to `end`, each on its own; see docs/backtest.md.

    `archive` is a data folder or the URL of a storage, which all workers can read. `subscriptions` is one LACL text,
    texts by id, or a frame with the columns `id`, `lacl` and perhaps `subscriber`, or `x` and `y`, and `node`; what a
    frame does not say is taken from the arguments. `at` is the position of somebody who stands still.

    The columns are `subscription`, `number`, `why`, `event` (JSON) and `approximate`: the reasons why the letters of
    this subscription may not be those of the stream; none if they are. A subscription without letters has no rows.

    Raises InputError, LaclError, NotFoundError and CoverageError before any event is read.
    """
    opened = open_archive(archive)
    asked = _requests(subscriptions, _micros(start, "start"), _micros(end, "end"), _Who(subscriber, at, node))
    tracks: dict[str, Tracks] = {}
    prepared = []
    for request in asked:
        of_node = find_node(opened, request)
        if of_node not in tracks:
            tracks[of_node] = opened.tracks(of_node, request.begin, request.end)
        prepared.append(prepare(opened, request, tracks[of_node]))
    earlier = {
        number: last_events(opened, each.plan.initial, each.request.begin)
        for number, each in enumerate(prepared)
        if each.plan.initial
    }
    files = tuple(file for file in opened.files() if file.kind != TRACKS)
    work = _Work(opened.storage, tuple(opened.erasures), files, tuple(prepared), earlier)
    most = _TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    tasks = spark.range(0, len(files) + 1, 1, min(len(files) + 1, most))
    found = tasks.mapInArrow(_find(work), spark_schema(_TASK_SCHEMA))
    return found.groupBy("request").applyInArrow(_make(work), spark_schema(_RESULT_SCHEMA))


class _Who(NamedTuple):
    subscriber: str | None
    at: tuple[float, float] | None
    node: str | None

    def get(self) -> Subscriber:
        if self.at is None:
            return Subscriber(self.subscriber, node=self.node)
        if self.subscriber is not None:
            raise InputError("a registered subscriber has a track of its own", where="at", hint="omit one of the two")
        return Subscriber.at(*self.at, self.node)


def _requests(
    subscriptions: str | Mapping[str, str] | DataFrame, begin: int, end: int, default: _Who
) -> Sequence[Request]:
    if isinstance(subscriptions, str):
        return [Request(subscriptions, begin, end, default.get())]
    if isinstance(subscriptions, Mapping):
        return [Request(text, begin, end, default.get(), id) for id, text in subscriptions.items()]
    if missing := {"id", "lacl"} - set(subscriptions.columns):
        hint = f"it has {', '.join(subscriptions.columns)}"
        raise InputError(f"no column {', '.join(sorted(missing))}", where="subscriptions", hint=hint)
    requests: dict[str, Request] = {}
    for row in subscriptions.toArrow().to_pylist():
        id, lacl, x, y = (row.get(name) for name in ("id", "lacl", "x", "y"))
        if not isinstance(id, str) or not isinstance(lacl, str) or (x is None) != (y is None):
            hint = "it needs the texts id and lacl, and both x and y or none of them"
            raise InputError(f"a row cannot be used: {row}", where="subscriptions", hint=hint)
        if id in requests:
            raise InputError(f"two rows have the id {id!r}", where="subscriptions", hint="make them unique")
        position = None if x is None or y is None else (float(x), float(y))
        who = _Who(row.get("subscriber"), position, row.get("node"))
        if who.subscriber is None and who.at is None:
            who = default._replace(node=who.node or default.node)
        requests[id] = Request(lacl, begin, end, who._replace(node=who.node or default.node).get(), id)
    return list(requests.values())


def _micros(time: datetime, where: str) -> int:
    if time.tzinfo is None:
        raise InputError("a time without time zone", where=where, hint="pass tzinfo=timezone.utc, or another zone")
    return (time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _find(work: _Work) -> Callable[[Batches], Batches]:
    """Return a function for mapInArrow: numbers of files in, rows of _TASK_SCHEMA out."""

    def run(batches: Batches) -> Batches:
        exclude_modules_from_collection()
        with ExitStack() as streams:
            opened: dict[int, Stream] = {}
            for task in (number for batch in batches for number in batch["id"].to_pylist()):
                for request, events, earlier in _events(work, task):
                    prepared = work.prepared[request]
                    if request not in opened:
                        stream = open_stream(prepared.plan.node, prepared.order.records)
                        opened[request] = streams.enter_context(stream)
                    for found in find(opened[request], prepared.order, events, earlier=earlier):
                        numbers = pa.array([request] * found.num_rows, pa.int64())
                        yield pa.RecordBatch.from_arrays([*found.columns, numbers], schema=_TASK_SCHEMA)

    return run


def _events(work: _Work, task: int) -> Iterator[tuple[int, Sequence[pa.RecordBatch], bool]]:
    """The events of a task for each backtest, and whether they are earlier ones, as those of the last task are."""
    if task == len(work.files):
        for request, rows in work.earlier.items():
            yield request, rows.to_batches(), True
        return
    storage, file = open_storage(work.storage), work.files[task]
    for request, prepared in enumerate(work.prepared):
        for begin, end, box, sources in prepared.plan.scans:
            rows = read_file(storage, file, ReadPlan(begin, end, box, sources), work.erasures, columns=COLUMNS)
            if rows.num_rows:
                yield request, rows.to_batches(), False


def _make(work: _Work) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """Return a function for applyInArrow: what was found for a backtest in, its letters out."""

    def run(key: tuple[pa.Scalar, ...], found: pa.Table) -> pa.Table:
        prepared = work.prepared[key[0].as_py()]
        rows = found.select(FOUND_SCHEMA.names).cast(FOUND_SCHEMA).combine_chunks()
        with open_stream(prepared.plan.node, prepared.order.records) as stream:
            letters, approximate = make_letters(stream, prepared, rows)
        bodies = [orjson.loads(body) for body in letters["body"].to_pylist()]
        columns = (
            [body["subscription"] for body in bodies],
            letters["number"],
            [body["why"] for body in bodies],
            [orjson.dumps(body["event"]).decode() for body in bodies],
            [list(approximate)] * len(bodies),
        )
        return pa.Table.from_pydict(dict(zip(_RESULT_SCHEMA.names, columns, strict=True)), _RESULT_SCHEMA)

    return run
