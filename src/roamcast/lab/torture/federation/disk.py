"""What survives a crash of a host: its registry, its journals and its outbox, in memory. The disk may be full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import pyarrow as pa

from roamcast.deliver.outbox import PipelineStatus
from roamcast.errors import StorageError
from roamcast.journal.records import Record, Records, to_records
from roamcast.lab.models.registry import MemoryRegistry
from roamcast.lab.torture.federation.points import Phase
from roamcast.model import Letter
from roamcast.store.registry.values import Change

__all__ = ["HostDisk", "MemoryJournal", "MemoryOutbox"]

CrashTest = Callable[[Phase], None]
"""Raises CrashError if the host crashes in this phase of what it does now."""


class HostDisk:
    """The disk of one host. While it is `full`, it refuses changes."""

    def __init__(self, now: Callable[[], int]) -> None:
        """`now` is in microseconds."""
        self.full = False
        self.crash_test: CrashTest = lambda _: None
        self.registry = FaultyRegistry(self)
        self.journals: dict[str, list[Record]] = {}
        self.written: list[tuple[str, int]] = []
        """The last offset of each append, by journal, in order."""
        self.outbox = MemoryOutbox(now)

    def append(self, journal: str, records: Sequence[Record]) -> int:
        """Journal records; returns the offset of the first. Raises StorageError."""
        self.check()
        rows = self.journals.setdefault(journal, [])
        rows.extend(records)
        self.written.append((journal, len(rows)))
        self.crash_test(Phase.JOURNALLED)
        return len(rows) - len(records) + 1

    def check(self) -> None:
        """Raises StorageError while the disk is full."""
        if self.full:
            raise StorageError("the disk is full", hint="this is a simulation")


class FaultyRegistry(MemoryRegistry):
    """A registry on such a disk."""

    def __init__(self, disk: HostDisk) -> None:
        super().__init__()
        self._disk = disk
        self.observe: Callable[[Sequence[Change]], None] = lambda _: None
        """Called with what is stored."""

    def apply(self, changes: Sequence[Change], *, at: int, journalled: int = 0) -> int:
        if not changes:
            self._disk.check()
            return super().apply(changes, at=at, journalled=journalled)
        self._disk.crash_test(Phase.UNSTORED)
        self._disk.check()
        last_ticket = super().apply(changes, at=at, journalled=journalled)
        self.observe(changes)
        self._disk.crash_test(Phase.STORED)
        return last_ticket


class MemoryJournal:
    """A JournalWriter."""

    def __init__(self, disk: HostDisk, node: str) -> None:
        self._disk = disk
        self._node = node

    @property
    def last_offset(self) -> int:
        return len(self._disk.journals.get(self._node, ()))

    def append(self, records: Records, *, urgent: bool = False) -> Future[int]:
        future: Future[int] = Future()
        try:
            rows = to_records(records) if isinstance(records, pa.RecordBatch) else records
            future.set_result(self._disk.append(self._node, rows))
        except StorageError as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Nothing is pending."""


_NANOSECONDS: Final = 1_000


class MemoryOutbox:
    """An outbox as `ForwardingQueues` and the pipeline use it."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._files: dict[str, dict[Path, tuple[int, list[Letter]]]] = {}
        self._changed: dict[str, int] = {}
        self._status: PipelineStatus | None = None

    def write_status(self, status: PipelineStatus) -> None:
        self._status = status

    def read_status(self) -> PipelineStatus | None:
        return self._status

    def put(self, office: str, pipeline: str, batch: int, letters: list[Letter]) -> None:
        """Replaces an earlier attempt at the same batch."""
        path = Path(office) / f"{batch:020d}-{pipeline}.parquet"
        self._files.setdefault(office, {})[path] = self._nanoseconds(), letters
        self._changed[office] = self._nanoseconds()

    def links_of(self, node: str) -> list[str]:
        return sorted(office for office in self._files if office.startswith(f"{node}@"))

    def changed_at(self, office: str) -> int | None:
        return self._changed.get(office)

    def waiting(self, office: str) -> list[Path]:
        return sorted(self._files.get(office, ()))

    def written_at(self, path: Path) -> int:
        return self._files[str(path.parent)][path][0]

    def read(self, path: Path) -> list[Letter]:
        return self._files[str(path.parent)][path][1]

    def remove(self, path: Path) -> None:
        office = str(path.parent)
        self._files[office].pop(path, None)
        self._changed[office] = self._nanoseconds()

    def _nanoseconds(self) -> int:
        return self._now() * _NANOSECONDS
