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
from roamcast.match.index.index import Index
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.polygons import Polygons
from roamcast.match.index.rows import index_rows
from roamcast.match.index.segments import file_name
from roamcast.match.port import Events, Matches
from roamcast.spark.subscriptions import CheckedSubscriptions

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["IndexFiles", "OpenIndex", "write_index"]

_ROWS: Final = "rows.arrow"


class IndexFiles(NamedTuple):
    """Names the files: the index, in which a handle is a row number, and the rows of subscriptions for the result.

    They are in `folder`, on every host; if they are `distributed`, where Spark puts the files of an application.
    """

    folder: str
    stack: tuple[SegmentRef, ...]
    rows: str
    size: int
    polygons: str | None = None
    distributed: bool = False

    def open(self) -> OpenIndex:
        """Open the files. A process keeps them from task to task; they are mapped, once for all processes of a host."""
        return _open(SparkFiles.getRootDirectory() if self.distributed else self.folder, self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files."""
        segments = (*(ref.segment for ref in self.stack), *filter(None, [self.polygons]))
        return (self.rows, *map(file_name, segments))

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

    def matches(self, events: Events) -> Iterator[Matches]:
        """Yield the matches of a batch in chunks."""
        return self.subscriptions.matches(events)


@lru_cache(maxsize=2)
def _open(folder: str, files: IndexFiles) -> OpenIndex:
    path = Path(folder)
    rows = pa.ipc.open_file(pa.memory_map(str(path / files.rows))).read_all()
    is_inside = None if files.polygons is None else Polygons.open(path, files.polygons).test
    return OpenIndex(IndexStore(path).open(files.stack, is_inside), rows)


def write_index(folder: Path, checked: CheckedSubscriptions) -> IndexFiles:
    """Write the files of subscriptions, all of which are good, into a folder."""
    subscriptions, polygons = checked.subscriptions, checked.polygons
    count = len(subscriptions.min_x)
    residual = None if polygons is None else polygons.is_present
    with storage_errors(folder):
        stack = IndexStore(folder).apply((), added=index_rows(np.arange(count), subscriptions, residual))
        file = None if polygons is None else polygons.write(folder)
        rows = checked.kept.combine_chunks()
        name = f"{folder.name}-{_ROWS}"
        with pa.ipc.new_file(str(folder / name), rows.schema) as writer:
            writer.write_table(rows)
    return IndexFiles(str(folder), stack, name, count, file)
