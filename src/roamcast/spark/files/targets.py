"""Where results are written: a local folder, which appears complete or not at all; any storage; or a table."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roamcast.durable import storage_errors, sync_file, sync_folder
from roamcast.errors import ConflictError, InputError
from roamcast.spark.files.sources import TABLE, Source, is_local, local_path
from roamcast.spark.geoparquet import GEOPARQUET, write_geoparquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

__all__ = ["Target"]


class Target(NamedTuple):
    """A place for rows: a path, a URI, or `table:NAME`. `option` is how a user names it.

    The format is `geoparquet`, or one of Spark's.
    """

    location: str
    format: str = "parquet"
    overwrite: bool = False
    option: str = "--out"

    def check(self, *inputs: Source) -> None:
        """Raises ConflictError or InputError if a local path must not be replaced. Does not use Spark.

        That is a file, a folder that is not empty or has an input, and one with other files than results.
        """
        if self.format == GEOPARQUET and self.location.startswith(TABLE):
            hint = f"pass a folder or a URI with {self.option}, or --format parquet"
            raise InputError("a table cannot be GeoParquet", where=self.location, hint=hint)
        if not self.is_folder or not self._folder.exists():
            return
        out, where, another = self._folder, self.location, f"pass another folder with {self.option}"
        if not out.is_dir():
            raise ConflictError("is a file", where=where, hint=f"pass a folder with {self.option}")
        local = (local_path(source.location) for source in inputs if source.is_local)
        if any(path.resolve().is_relative_to(out.resolve()) for path in local):
            raise InputError("contains the input", where=where, hint=another)
        names = [entry.name for entry in out.iterdir()]
        if names and not self.overwrite:
            raise ConflictError("is not empty", where=where, hint=f"{another}, or --overwrite")
        foreign = [name for name in names if not name.startswith(("part-", "_SUCCESS")) and not name.endswith(".crc")]
        if foreign:
            hint = f"--overwrite replaces results only; {another}"
            raise ConflictError(f"contains {foreign[0]!r}, which is not a result of matching", where=where, hint=hint)

    def write(self, rows: DataFrame) -> None:
        """Write rows. If anything fails, a local folder is unchanged; of other places Spark decides that."""
        if self.is_folder:
            with _replace_folder(self._folder) as folder:
                if self.format == GEOPARQUET:
                    write_geoparquet(rows, f"file://{folder}")
                else:
                    self._writer(rows).save(f"file://{folder}")
            return
        if self.format == GEOPARQUET:
            write_geoparquet(rows, self.location, mode="overwrite" if self.overwrite else "error")
            return
        writer = self._writer(rows).mode("overwrite" if self.overwrite else "error")
        if self.location.startswith(TABLE):
            writer.saveAsTable(self.location.removeprefix(TABLE))
        else:
            writer.save(self.location)

    def _writer(self, rows: DataFrame) -> DataFrameWriter:
        writer = rows.write.format(self.format)
        return writer.option("header", True) if self.format == "csv" else writer

    def folder(self, name: str) -> Target:
        """A folder in this one."""
        return self._replace(location=f"{self.location.rstrip('/')}/{name}")

    @property
    def is_folder(self) -> bool:
        """Whether it is a local folder."""
        return is_local(self.location) and not self.location.startswith(TABLE)

    @property
    def _folder(self) -> Path:
        return local_path(self.location)


@contextmanager
def _replace_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `out` at the end. If anything fails, `out` is unchanged."""
    mark = uuid.uuid4().hex[:12]
    folder, old = (out.with_name(f".{out.name}.{mark}.{state}") for state in ("new", "old"))
    with storage_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    try:
        target = folder / "pairs"
        yield target
        with storage_errors(out):
            for path in target.iterdir():
                sync_file(path)
            sync_folder(target)
            if out.exists():
                out.rename(old)
            try:
                target.rename(out)
            except OSError:
                if old.exists():
                    old.rename(out)
                raise
            sync_folder(out.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
