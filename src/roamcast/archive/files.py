"""The files of the archive: columns, names, and how they are encoded.

    archive/versions/<n>.json                       what counts, see `versions`
    archive/recent/<pipeline>/<batch>.parquet       the records of one batch, until they are compacted
    archive/events/date=<day>/cell=<cell>/<name>.parquet   events, sorted along a curve in the plane, see `cells`
    archive/tracks/date=<day>/<name>.parquet        tracking records, by node and offset

The date is that of `written`: when the record was journalled, by the clock of the node's disk. `batch` numbers the
batches of all pipelines that have written to the archive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.errors import CorruptionError
from roamcast.journal.records import RECORD_SCHEMA
from roamcast.model import Box, iso
from roamcast.storage.port import Storage

__all__ = [
    "ARCHIVE_SCHEMA", "EVENTS", "RECENT", "ROOT", "TRACKS", "ArchiveFile", "FileKind", "Statistics", "day_of",
    "encode", "micros", "open_parquet", "read_metadata", "recent_name", "split_recent_name",
]  # fmt: skip

FORMAT: Final = "roamcast-archive/1"
ROOT: Final = "archive"
RECENT: Final = f"{ROOT}/recent"
EVENTS: Final = "events"
TRACKS: Final = "tracks"

FileKind: TypeAlias = Literal["events", "tracks", "recent"]

ARCHIVE_SCHEMA: Final = pa.schema(
    [
        *RECORD_SCHEMA,
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("written", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)

_ROW_GROUP: Final = 8_192
_KEY: Final = b"roamcast"
_REPEATED: Final = ["node", "kind", "entity", "terms.list.element", "readings.key_value.key", "body"]
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
_HINT: Final = "restore it from a backup, or move the folder of the archive away to begin a new one"


class Statistics(NamedTuple):
    """What rows have: times are those of `written`; `box` is None without points."""

    rows: int
    first_batch: int
    last_batch: int
    begin: int
    end: int
    box: Box | None

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        if not rows.num_rows:
            return cls(0, 0, 0, 0, 0, None)
        batch, x, y = (pc.min_max(rows[name]).as_py() for name in ("batch", "x", "y"))
        written = pc.min_max(micros(rows["written"])).as_py()
        box = None if x["min"] is None else Box(x["min"], y["min"], x["max"], y["max"])
        return cls(rows.num_rows, batch["min"], batch["max"], written["min"], written["max"], box)

    def to_json(self) -> list[Any]:
        return [self.rows, self.first_batch, self.last_batch, self.begin, self.end, self.box and list(self.box)]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> Self:
        rows, first_batch, last_batch, begin, end, box = values
        return cls(rows, first_batch, last_batch, begin, end, box and Box(*box))


class ArchiveFile(NamedTuple):
    """A file of the archive, and what it has. `run` numbers the merges: files of one run were written together.

    Of erasures, those up to number `erased` are carried out in it.
    """

    name: str
    kind: FileKind
    size: int
    statistics: Statistics
    run: int = 0
    erased: int = 0

    @property
    def date(self) -> str:
        return day_of(self.statistics.begin)

    def to_json(self) -> list[Any]:
        return [self.name, self.kind, self.size, self.statistics.to_json(), self.run, self.erased]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> Self:
        name, kind, size, statistics, run, erased = values
        return cls(name, kind, size, Statistics.from_json(statistics), run, erased)


def micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as microseconds since 1970."""
    return times.cast(pa.int64())


def day_of(time: int) -> str:
    """The date of a time, in UTC."""
    return iso(time)[:10]


def recent_name(pipeline: str, batch: int) -> str:
    return f"{RECENT}/{pipeline}/{batch:020d}.parquet"


def split_recent_name(name: str) -> tuple[str, int] | None:
    """The pipeline and the number of its batch; None for any other name."""
    folder, _, file = name.rpartition("/")
    number, dot, suffix = file.partition(".")
    parent, _, pipeline = folder.rpartition("/")
    is_recent = parent == RECENT and number.isdecimal() and dot + suffix == ".parquet"
    return (pipeline, int(number)) if is_recent else None


def encode(rows: pa.Table, metadata: Mapping[str, Any] | None = None) -> bytes:
    """The content of a file with these rows, in small row groups with statistics of coordinates and times."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        ARCHIVE_SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=_REPEATED,
        write_statistics=["node", "offset", "x", "y", "batch", "written"],
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(rows.cast(ARCHIVE_SCHEMA), _ROW_GROUP)
        writer.add_key_value_metadata({_KEY: orjson.dumps({"format": FORMAT, **(metadata or {})})})
    return bytes(sink.getvalue())


def open_parquet(storage: Storage, name: str, dictionaries: Sequence[str] = ()) -> pq.ParquetFile | None:
    """A file of the archive; None if it is not there. Raises CorruptionError if it is damaged.

    The columns `dictionaries` are read as such.
    """
    source = storage.open(name)
    if source is None:
        return None
    try:
        file = pq.ParquetFile(source, page_checksum_verification=True, read_dictionary=list(dictionaries))
        format = _content(file).get("format")
    except _UNREADABLE as error:
        raise CorruptionError(f"unreadable: {error}", where=f"{storage.url}/{name}", hint=_HINT) from error
    if format != FORMAT:
        raise CorruptionError(
            f"its format is {format}, not {FORMAT}",
            where=f"{storage.url}/{name}",
            hint="read it with the version of roamcast that wrote it",
        )
    return file


def read_metadata(file: pq.ParquetFile) -> dict[str, Any]:
    """What `encode` was given."""
    return {name: value for name, value in _content(file).items() if name != "format"}


def _content(file: pq.ParquetFile) -> dict[str, Any]:
    content = orjson.loads((file.metadata.metadata or {}).get(_KEY, b"{}"))
    if not isinstance(content, dict):
        raise TypeError("not an object")
    return content
