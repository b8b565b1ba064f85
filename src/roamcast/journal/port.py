"""The journal's port. Adapters: `files` (embedded)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from roamcast.journal.records import Record

__all__ = ["JournalWriter"]


class JournalWriter(Protocol):
    """Appends to the one log of one node. There is one writer per node at a time.

    `append` puts `records` at consecutive dense offsets, all of them or none, in the order of the calls. Its
    future gives the first offset, and only after the records would survive a crash of the machine. It fails
    with StorageError when the disk refuses; then none of the records is in the journal, and later calls may succeed,
    unless the error says that it is unknown: then the sender sends again, and copies count once.
    """

    def append(self, records: Sequence[Record]) -> Future[int]: ...

    def close(self) -> None:
        """Write what is under way, then refuse."""
