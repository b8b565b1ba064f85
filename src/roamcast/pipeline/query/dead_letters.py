"""Dead letters: records that could not be processed, with the reason, in a file for each batch. For the operator."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.durable import storage_errors, write_atomic
from roamcast.journal.port import JournalReader
from roamcast.pipeline.state.control import DeadLetter

__all__ = ["DeadLetterFolder"]

log = logging.getLogger(__name__)


class DeadLetterFolder:
    """The dead letters of a pipeline. The operator may remove files at any time."""

    def __init__(self, folder: Path, journal: JournalReader) -> None:
        self._folder = folder
        self._journal = journal
        self._files: dict[str, _File] = {}  # as they were counted last

    def write(self, batch: int, dead_letters: Sequence[DeadLetter]) -> None:
        """Write the records of a batch that cannot be processed, replacing those of an earlier attempt."""
        if not dead_letters:
            return
        lines = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self._rows_of(dead_letters)]
        with storage_errors(self._folder):
            self._folder.mkdir(exist_ok=True)
        write_atomic(self._folder / f"{batch:020d}.ndjson", b"".join(lines))
        log.warning("batch %d: %d dead letters in %s", batch, len(lines), self._folder)

    def count(self) -> tuple[int, int | None]:
        """The number of records in the files, and when the oldest file was written."""
        files: dict[str, _File] = {}
        with storage_errors(self._folder):
            for path in self._folder.glob("*.ndjson") if self._folder.is_dir() else ():
                try:
                    changed = path.stat().st_mtime_ns
                    known = self._files.get(path.name)
                    if known is None or known.changed != changed:
                        known = _File(changed, path.read_bytes().count(b"\n"))
                    files[path.name] = known
                except FileNotFoundError:
                    continue  # the operator is done with it
        self._files = files
        since = min((file.changed for file in files.values()), default=None)
        return sum(file.records for file in files.values()), None if since is None else since // 1_000

    def _rows_of(self, dead_letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
        """The records of dead letters with their reasons, ordered by node and offset."""
        rows: list[dict[str, Any]] = []
        for node, group in groupby(sorted(dead_letters), key=attrgetter("node")):
            letters = list(group)
            offsets = pa.array([letter.offset for letter in letters], pa.int64())
            batches = self._journal.read(node, letters[0].offset - 1, letters[-1].offset)
            records = pa.Table.from_batches(batch.filter(pc.is_in(batch["offset"], offsets)) for batch in batches)
            # As text, because a time may be one that Python cannot represent.
            times = records["time"].cast(pa.string())
            records = records.set_column(records.schema.get_field_index("time"), "time", times)
            records = records.take(pc.index_in(offsets, records["offset"]))
            rows += ({**row, "reason": one.reason} for row, one in zip(records.to_pylist(), letters, strict=True))
        return rows


class _File(NamedTuple):
    changed: int  # modification time, in nanoseconds
    records: int
