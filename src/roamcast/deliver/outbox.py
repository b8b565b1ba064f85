"""The outbox: where the pipeline leaves letters and each office takes its own.

    outbox/sender.json                          who writes here, and how far it is
    outbox/<office>/<batch>-<pipeline>.parquet  the letters of one batch to one office

Batches appear in order, each whole; batch N written again replaces batch N with the same letters, and never those of
another pipeline, whose batches are numbered from 0 as well. An office takes the lowest batch first and removes it once
its letters are stored. Taking one twice is harmless: mailboxes drop what they have had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import CorruptionError
from roamcast.model import Letter

__all__ = ["FORMAT", "LETTERS_SCHEMA", "Outbox", "Sender"]

FORMAT = "roamcast-outbox/1"

LETTERS_SCHEMA = pa.schema(
    [
        pa.field("receiver", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("body", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Sender:
    """The pipeline's card: its identity, the last batch it finished, and its counters since it was new.

    `figures` and `seconds` tell of that batch alone: what it cost, and how long each of its steps took. `read` is the
    last offset that it has read of each node's journal.
    """

    pipeline: str
    batch: int
    counters: Mapping[str, int]
    figures: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)


class Outbox:
    """One folder, one writing pipeline, any number of offices that read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, office: str, pipeline: str, batch: int, letters: pa.Table) -> None:
        """Leave the letters of `batch` for `office`, durably, replacing an earlier try at the same batch."""
        folder = self._folder / office
        metadata = {"format": FORMAT, "pipeline": pipeline, "batch": str(batch)}
        buffer = pa.BufferOutputStream()
        table = letters.cast(LETTERS_SCHEMA.with_metadata(metadata))
        pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
        make_folder(folder)
        write_atomic(folder / f"{batch:020d}-{pipeline}.parquet", memoryview(buffer.getvalue()))

    def waiting(self, office: str) -> list[Path]:
        """The batches that lie here for `office`, lowest first."""
        folder = self._folder / office
        return sorted(folder.glob("*.parquet")) if folder.is_dir() else []

    def fullest(self) -> tuple[str, int]:
        """The office with most batches waiting, and how many; ("", 0) when nothing waits."""
        if not self._folder.is_dir():
            return "", 0
        counts = [(len(self.waiting(f.name)), f.name) for f in self._folder.iterdir() if f.is_dir()]
        count, office = max(counts, default=(0, ""))
        return office, count

    def read(self, path: Path) -> list[Letter]:
        """The letters of one waiting batch, in the order they were put."""
        with storage_errors(path):
            content = path.read_bytes()
        try:
            table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
            metadata = table.schema.metadata or {}
            if metadata.get(b"format") != FORMAT.encode() or not table.schema.equals(LETTERS_SCHEMA):
                raise pa.ArrowInvalid(f"format {metadata.get(b'format')!r}, columns {table.schema.names}")
            sender = metadata[b"pipeline"].decode()
            columns = [table.column(name).to_pylist() for name in LETTERS_SCHEMA.names]
        except (pa.ArrowException, OSError, LookupError, UnicodeError) as error:
            raise CorruptionError(
                f"not a readable {FORMAT} file: {error}",
                where=str(path),
                hint="restore it from a copy: its letters exist nowhere else",
            ) from error
        return [Letter(to, sender, number, body) for to, number, body in zip(*columns, strict=True)]

    def taken(self, path: Path) -> None:
        """Remove a batch whose letters are stored."""
        with storage_errors(path):
            path.unlink(missing_ok=True)

    def show_sender(self, sender: Sender) -> None:
        """Tell the offices who writes here and how far it is. Cheap; not durable; always whole."""
        card = {
            "format": FORMAT,
            "pipeline": sender.pipeline,
            "batch": sender.batch,
            "counters": dict(sender.counters),
            "figures": dict(sender.figures),
            "seconds": dict(sender.seconds),
            "read": dict(sender.read),
        }
        make_folder(self._folder)
        write_atomic(self._folder / "sender.json", orjson.dumps(card), durable=False)

    def sender(self) -> Sender | None:
        """Who writes here; None while no pipeline has said so."""
        path = self._folder / "sender.json"
        if not path.exists():
            return None
        with storage_errors(path):
            content = path.read_bytes()
        if not content.strip(b"\0"):
            return None  # all that a power cut may leave of a file that was never synced; it is soon written anew
        try:
            card = orjson.loads(content)
            if card["format"] != FORMAT:
                raise ValueError(f"format {card['format']!r}")
            more = (card.get(name, {}) for name in ("figures", "seconds", "read"))
            return Sender(card["pipeline"], card["batch"], card["counters"], *more)
        except (LookupError, TypeError, ValueError) as error:
            raise CorruptionError(
                f"not a {FORMAT} sender's card: {error}",
                where=str(path),
                hint="remove it; the pipeline writes it anew",
            ) from error
