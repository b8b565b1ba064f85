"""The files of compiled subscriptions: written by the driver, opened by tasks on any host."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import SparkFiles

from roamcast.durable import storage_errors
from roamcast.errors import ConflictError
from roamcast.match.index.index import Index
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.polygons import Polygons
from roamcast.match.index.rows import index_rows
from roamcast.match.index.segments import file_name
from roamcast.match.port import Events, Matches
from roamcast.spark.rows.conditions import have_conditions, matches_of
from roamcast.spark.rows.event_fields import NO_EVENT_FIELDS, EventFields, FieldColumns
from roamcast.spark.rows.subscriptions import CheckedSubscriptions

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["IndexFiles", "OpenIndex", "write_index"]

_ROWS: Final = "rows.arrow"
_CONDITIONS: Final = "conditions.arrow"


class IndexFiles(NamedTuple):
    """Names the files: the index, in which a handle is a row number, and the rows of subscriptions for the result.

    `conditions` are those of the rows, if any have some. All are in `folder`, on every host; if they are
    `distributed`, where Spark puts the files of an application.
    """

    folder: str
    stack: tuple[SegmentRef, ...]
    rows: str
    size: int
    polygons: str | None = None
    conditions: str | None = None
    distributed: bool = False

    def open(self) -> OpenIndex:
        """Open the files. A process keeps them from task to task; they are mapped, once for all processes of a host."""
        return _open(SparkFiles.getRootDirectory() if self.distributed else self.folder, self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files."""
        segments = (*(ref.segment for ref in self.stack), *filter(None, [self.polygons]))
        return (self.rows, *filter(None, [self.conditions]), *map(file_name, segments))

    def distribute(self, context: SparkContext) -> IndexFiles:
        """Let Spark send the files to executors. They must then stay in the folder until the process ends."""
        known = {url.rpartition("/")[2] for url in context.listFiles}
        for name in self.names:
            if name not in known:  # equal segments have equal names
                context.addFile(str(Path(self.folder) / name))
        return self._replace(distributed=True)

    def remove(self) -> None:
        if not self.distributed:
            shutil.rmtree(self.folder, ignore_errors=True)


class OpenIndex(NamedTuple):
    """The files, opened. `rows` has the columns of subscriptions for the result."""

    subscriptions: Index
    rows: pa.Table
    conditions: pa.Table | None

    def matches(self, events: Events, fields: EventFields = NO_EVENT_FIELDS) -> Iterator[Matches]:
        """Yield the matches of a batch in chunks."""
        if self.conditions is None:
            return self.subscriptions.matches(events)
        return matches_of(self.subscriptions, self.conditions, events, FieldColumns(events, fields))


@lru_cache(maxsize=2)
def _open(folder: str, files: IndexFiles) -> OpenIndex:
    path = Path(folder)
    if not (path / files.rows).exists():
        hint = "close them after the matches are written; a folder= must be on all hosts"
        raise ConflictError("the files of the compiled subscriptions are gone", where=folder, hint=hint)
    rows = _read_table(path / files.rows)
    conditions = None if files.conditions is None else _read_table(path / files.conditions)
    is_inside = None if files.polygons is None else Polygons.open(path, files.polygons).test
    return OpenIndex(IndexStore(path).open(files.stack, is_inside), rows, conditions)


def _read_table(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def write_index(folder: Path, checked: CheckedSubscriptions) -> IndexFiles:
    """Write the files of subscriptions, all of which are good, into a folder."""
    subscriptions, polygons, conditions = checked.subscriptions, checked.polygons, checked.conditions
    count = len(subscriptions.min_x)
    residual = None if polygons is None else polygons.is_present
    if conditions is not None:
        residual = have_conditions(conditions)
    with storage_errors(folder):
        stack = IndexStore(folder).apply((), added=index_rows(np.arange(count), subscriptions, residual))
        file = None if polygons is None else polygons.write(folder)
        name = _write_table(folder, _ROWS, checked.kept)
        further = None if conditions is None else _write_table(folder, _CONDITIONS, conditions)
    return IndexFiles(str(folder), stack, name, count, file, further)


def _write_table(folder: Path, name: str, table: pa.Table) -> str:
    """Write a file for `_read_table`, in one piece, and return its name."""
    file, rows = f"{folder.name}-{name}", table.combine_chunks()
    with pa.ipc.new_file(str(folder / file), rows.schema) as writer:
        writer.write_table(rows)
    return file
