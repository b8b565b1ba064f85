"""Local Parquet files without Java: the part of Spark's interface that matching uses, with threads of this process.

Starting Spark, and sending rows through Java, takes most of the time of matching a few million rows. A `LocalSession`
takes the place of a SparkSession for local Parquet files. Whatever it does not do exactly as Spark does raises
NeedsSparkError: then nothing is written, and Spark has to do all of it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from roamcast.durable import storage_errors
from roamcast.errors import InputError, RoamcastError
from roamcast.spark.rows.geometry_types import METADATA

if TYPE_CHECKING:
    from pyspark.accumulators import AccumulatorParam
    from pyspark.sql.types import StructType

__all__ = ["LocalFrame", "LocalSession", "NeedsSparkError", "local_threads"]

_TYPES: Final = {
    **{kind: kind for kind in (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())},
    pa.string(): pa.string(), pa.large_string(): pa.string(),
    pa.binary(): pa.binary(), pa.large_binary(): pa.binary(),
}  # fmt: skip
"""Types, beside lists of texts, of which Spark and Arrow read the same values; and as what Spark sends these."""
_MASTER: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_HIDDEN: Final = re.compile(r"(^|/)[_.]")
_COLUMN: Final = re.compile(r"`([^`.]+)` AS (_\d+)")
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_ROWS: Final = 50_000  # of a batch

Batches: TypeAlias = Iterator[pa.RecordBatch]
Work: TypeAlias = Callable[[Batches], Batches]


class NeedsSparkError(RoamcastError):
    """Only Spark can do this."""


def _needs_spark(what: str) -> NoReturn:
    raise NeedsSparkError(what, hint="use Spark")


def local_threads(master: str) -> int | None:
    """How many threads a local master of Spark has; None for other masters."""
    found = _MASTER.fullmatch(master)
    if not found:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else max(int(found[1] or 1), 1)


class LocalSession:
    """In place of a SparkSession, its reader, and its SparkContext.

    `done` row groups of the `total` of the events are finished. After `stop`, reading and writing fail. `error` is why
    the input was refused.
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.master = threads, f"local[{threads}]"
        self.done, self.total = 0, 0
        self.stopped = threading.Event()
        self.error: InputError | None = None

    @property
    def read(self) -> LocalSession:
        return self

    @property
    def sparkContext(self) -> LocalSession:  # noqa: N802 - Spark's name
        return self

    def accumulator(self, value: Any, param: AccumulatorParam[Any]) -> _Sum:
        return _Sum(value, param)

    def option(self, name: str, _: object) -> LocalSession:
        return self if name == "recursiveFileLookup" else _needs_spark(name)

    def parquet(self, path: str) -> LocalFrame:
        """The Parquet files of a path, in which special characters are escaped. All have the same columns."""
        root = Path(re.sub(r"\\(.)", r"\1", path.removeprefix("file://")))
        if not root.exists():
            _needs_spark("a pattern of names")
        names = {str(file.relative_to(root)): file for file in _files(root)}
        if any("=" in name for name in names):
            _needs_spark("columns that are names of folders")
        visible = [file for name, file in names.items() if not _HIDDEN.search(name)] or [root]
        with _reading():
            metadata = [pq.read_metadata(file) for file in visible]
        if any(_is_rare(each.schema) for each in metadata):
            _needs_spark("GEOMETRY, GEOGRAPHY and ENUM")
        if any(METADATA.encode() in (each.metadata or {}).get(_SPARK_SCHEMA, b"") for each in metadata):
            _needs_spark("what Spark knows of geometries")
        keys = [(each.metadata or {}).get(b"geo") for each in metadata]
        footers = [(str(file), key and key.decode()) for file, key in zip(visible, keys, strict=True)]
        schemas = [each.schema.to_arrow_schema().remove_metadata() for each in metadata]
        if any(schema != schemas[0] for schema in schemas):
            _needs_spark("files with different columns")
        groups = [
            _RowGroup(f, n) for f, each in zip(visible, metadata, strict=True) for n in range(each.num_row_groups)
        ]
        try:
            return LocalFrame(self, groups, schemas[0], from_arrow_schema(schemas[0]), footers=footers)
        except PySparkException:
            _needs_spark("columns of other types")

    def stop(self) -> None:
        self.stopped.set()

    def check_stopped(self) -> None:
        if self.stopped.is_set():
            _needs_spark("stopped")

    def __getattr__(self, name: str) -> NoReturn:
        _needs_spark(name)


class _Sum:
    """In place of an Accumulator."""

    def __init__(self, value: Any, param: AccumulatorParam[Any]) -> None:
        self.value, self._param, self._lock = value, param, threading.Lock()

    def add(self, term: Any) -> None:
        with self._lock:
            self.value = self._param.addInPlace(self.value, term)


class _RowGroup(NamedTuple):
    path: Path
    number: int


class LocalFrame:
    """In place of a DataFrame of Parquet files. `sent` are the selected columns, as Spark sends them to Python.

    `footers` has the path of each file, and its key `geo`.
    """

    def __init__(
        self, session: LocalSession, groups: Sequence[_RowGroup], types: pa.Schema, schema: StructType,
        sent: pa.Schema | None = None, footers: Sequence[tuple[str, str | None]] = (),
    ) -> None:  # fmt: skip
        self.sparkSession, self.schema, self.columns = session, schema, schema.names
        self.groups, self._types, self._sent, self.footers = groups, types, sent or pa.schema([]), footers

    def with_metadata(self, schema: StructType) -> LocalFrame:
        """The frame with the metadata that fields have in this schema."""
        return LocalFrame(self.sparkSession, self.groups, self._types, schema, self._sent, self.footers)

    def selectExpr(self, *expressions: str) -> LocalFrame:  # noqa: N802 - Spark's name
        """Select plain columns, which are then called `_0`, `_1`, …"""
        names = [(_COLUMN.fullmatch(expression) or _needs_spark(expression))[1] for expression in expressions]
        lower = [name.lower() for name in self._types.names]
        if any(lower.count(name.lower()) > 1 for name in names):
            _needs_spark("columns whose names differ by case")
        sent = pa.schema([(name, _sent_type(self._types.field(name).type)) for name in names])
        return LocalFrame(self.sparkSession, self.groups, self._types, self.schema, sent)

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        tables = [self._renamed(self._types.empty_table())]
        for path in dict.fromkeys(group.path for group in self.groups):
            with _reading(), pq.ParquetFile(path) as file:
                tables.append(self._renamed(file.read(self._sent.names)))
        return pa.concat_tables(tables)

    def mapInArrow(self, work: Work, schema: StructType) -> _LocalRows:  # noqa: N802 - Spark's name
        return _LocalRows(self, work, to_arrow_schema(schema))

    def batches(self, groups: Iterator[_RowGroup]) -> Batches:
        """Read row groups until none is left."""
        for path, number in groups:
            with _reading(), pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS, [number], self._sent.names, use_threads=False):
                    self.sparkSession.check_stopped()
                    yield self._renamed(batch)
            self.sparkSession.done += 1

    def _renamed(self, rows: Any) -> Any:
        sent = rows.select(self._sent.names).cast(self._sent)
        return sent.rename_columns([f"_{at}" for at in range(len(self._sent))])

    def __getattr__(self, name: str) -> NoReturn:
        _needs_spark(name)


class _LocalRows:
    """In place of the DataFrame that `mapInArrow` returns, and its writer."""

    def __init__(self, frame: LocalFrame, work: Work, schema: pa.Schema) -> None:
        self._frame, self._work, self._schema = frame, work, schema
        self._groups, self._lock = iter(frame.groups), threading.Lock()
        self._errors: list[BaseException] = []

    @property
    def write(self) -> _LocalRows:
        return self

    def format(self, name: str) -> _LocalRows:
        return self if name == "parquet" else _needs_spark(name)

    def save(self, path: str) -> None:
        """Write a file for each thread. Threads share the row groups."""
        session, folder = self._frame.sparkSession, Path(path.removeprefix("file://"))
        session.done, session.total = 0, len(self._frame.groups)
        with storage_errors(folder):
            folder.mkdir()
            with ThreadPoolExecutor(session.threads) as pool:
                for number in range(session.threads):
                    pool.submit(self._write, folder / f"part-{number:05}.parquet")
            if self._errors:
                raise self._errors[0]
            session.check_stopped()
            (folder / "_SUCCESS").touch()

    def _write(self, path: Path) -> None:
        try:
            with pq.ParquetWriter(path, self._schema) as writer:
                for rows in self._work(self._frame.batches(self._rest())):
                    self._frame.sparkSession.check_stopped()
                    writer.write_batch(rows.cast(self._schema))
        except BaseException as error:
            self._errors.append(error)
            self._frame.sparkSession.stop()

    def _rest(self) -> Iterator[_RowGroup]:
        """The row groups that no thread has begun."""
        while True:
            with self._lock:
                group = next(self._groups, None)
            if group is None:
                return
            yield group

    def __getattr__(self, name: str) -> NoReturn:
        _needs_spark(name)


def _files(root: Path) -> list[Path]:
    """All files in a folder, in order."""
    if not root.is_dir():
        return [root]
    found = []
    with _reading():
        for folder, folders, files in os.walk(root, onerror=_raise):
            if any(Path(folder, name).is_symlink() for name in folders):
                _needs_spark("linked folders")
            found += [Path(folder, name) for name in files]
    return sorted(found)


def _raise(error: OSError) -> NoReturn:
    raise error


def _is_rare(schema: pq.ParquetSchema) -> bool:
    """Whether Arrow reads a column otherwise than Spark: geometries, and ENUM, which is a text in Spark only."""
    rare = ("GEOMETRY", "GEOGRAPHY", "ENUM")
    return any(schema.column(at).logical_type.type in rare for at in range(len(schema)))


def _sent_type(kind: pa.DataType) -> pa.DataType:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list and _TYPES.get(kind.value_type) == pa.string():
        return pa.list_(pa.string())
    return _TYPES.get(kind) or _needs_spark(f"columns of type {kind}")


@contextmanager
def _reading() -> Iterator[None]:
    """Let Spark read, or refuse, what Arrow cannot read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise NeedsSparkError(f"cannot read: {error}", hint="use Spark") from error
