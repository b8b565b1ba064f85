"""Archives for tests: batches of records, and what a reader should find."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from storages import storage_at

from roamcast.archive.compaction import Compaction, CompactionLimits
from roamcast.archive.reader import Archive
from roamcast.archive.versions import newest_version
from roamcast.archive.writer import ArchiveWriter
from roamcast.errors import StorageError
from roamcast.journal.records import EVENT, REGISTERED, SNAPSHOT, SNAPSHOT_END, TRACK, Record, to_batch
from roamcast.journal.tracking import EntityBody, SnapshotBody
from roamcast.storage.port import Storage

DAY = 24 * 3600 * 1_000_000
HOUR = DAY // 24
START = 20_000 * DAY
"""A midnight."""

EAGER = CompactionLimits(recent=1, recent_age=0.0, rows=100, small=10, cell=8, erase_every=0.0, grace=0.0)


def memory_storage() -> Storage:
    return storage_at(f"memory://bucket/{uuid.uuid4().hex}")


def event(source: str, seq: int, x: float = 0.0, y: float = 0.0) -> Record:
    return Record(EVENT, source, seq, f"{source}-{seq}", START, x, y, ["fire"], {"heat": 1.5}, '{"floor":2}')


def track(entity: str, at: int, x: float = 0.0, y: float = 0.0) -> Record:
    return Record(TRACK, entity, at, time=at, x=x, y=y)


def registered(entity: str, at: int, x: float | None = None, kind: Any = "source") -> Record:
    y, time = (None, None) if x is None else (0.0, at)
    return Record(REGISTERED, entity, at, time=time, x=x, y=y, body=EntityBody(kind, {}).to_json())


def snapshot(at: int, *entities: str) -> list[Record]:
    body = SnapshotBody("planar", None, len(entities)).to_json()
    said = [registered(entity, at, 0.0) for entity in entities]
    return [Record(SNAPSHOT, seq=at, body=body), *said, Record(SNAPSHOT_END, seq=at)]


class Journals:
    """The journals of some nodes, and the pipeline that archives them. Batches are one hour apart."""

    def __init__(self, storage: Storage, pipeline: str = "p1") -> None:
        self.storage = storage
        self.pipeline = pipeline
        self.records: dict[str, list[Record]] = {}
        self.read: dict[str, int] = {}
        self.batch = -1
        self.start()

    def start(self, pipeline: str | None = None) -> None:
        """The process starts again; perhaps with another pipeline, which reads everything from the beginning."""
        if pipeline is not None:
            self.pipeline, self.batch, self.read = pipeline, -1, {}
        self.writer = ArchiveWriter(self.storage, self.pipeline, self.batch)

    def written(self, batch: int) -> int:
        return START + batch * HOUR

    def add(
        self,
        records: Mapping[str, Iterable[Record]] | Sequence[Record] = (),
        dropped: Mapping[str, Collection[int]] | None = None,
        *,
        times: int = 1,
        commit: bool = True,
        written: int | None = None,
    ) -> None:
        """Archive a batch that has these records, of the node `local` if they are a list."""
        for node, more in ({"local": records} if isinstance(records, Sequence) else records).items():
            self.records.setdefault(node, []).extend(more)
        batch = self.batch + 1
        time = self.written(batch) if written is None else written
        ends = {node: len(all) for node, all in self.records.items()}
        firsts = {node: self.read.get(node, 0) + 1 for node, end in ends.items() if self.read.get(node, 0) < end}
        for _ in range(times):
            rows = (to_batch(node, first, self.records[node][first - 1 :]) for node, first in firsts.items())
            written_times = {node: [(ends[node], time)] for node in firsts}
            self.writer.add(batch, rows, written_times, firsts, ends, dropped or {})
        if commit:
            self.batch, self.read = batch, ends

    def compact(self, limits: CompactionLimits = EAGER, now: int | None = None) -> Compaction:
        """Do what is due at a time, in microseconds."""
        moment = (self.written(self.batch + 1) if now is None else now) * 1_000
        compaction = Compaction(self.storage, limits, now=lambda: moment)
        compaction.run(self.pipeline, self.batch)
        return compaction

    def open(self) -> Archive:
        version = newest_version(self.storage)
        assert version is not None
        return Archive(self.storage, version)

    def events(self, **wanted: Any) -> list[tuple[str, int]]:
        """The nodes and offsets of archived events, in order."""
        rows = self.open().events_table(**wanted)
        return list(zip(rows["node"].to_pylist(), rows["offset"].to_pylist(), strict=True))


class CrashingStorage:
    """A storage that fails at the `crash`-th change, and at all later ones. The change itself may have happened."""

    def __init__(self, storage: Storage, crash: int, *, after: bool) -> None:
        self._storage = storage
        self._left = crash
        self._after = after
        self.url = storage.url

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)
        if name not in ("put", "put_file", "create", "delete"):
            return method

        def change(*arguments: Any) -> Any:
            if name == "delete" and not (arguments := (list(arguments[0]),))[0]:
                return None
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._after):
                raise StorageError("crash")
            result = method(*arguments)
            if self._left == 0:
                raise StorageError("crash")
            return result

        return change


def everything_in(storage: Storage) -> bytes:
    """The content of all files, also of those that do not count, without compression."""
    from roamcast.archive.files import ROOT, open_parquet

    found = b""
    for file in storage.files(ROOT):
        if file.name.endswith(".json"):
            found += storage.get(file.name) or b""
        elif (opened := open_parquet(storage, file.name)) is not None:
            found += str(opened.read().to_pylist()).encode() + str(opened.metadata.metadata).encode()
    return found


def folder_of(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
