"""A disk that fails: it loses unsynced data and fills up."""

from __future__ import annotations

from roamcast.deliver.port import Tenure
from roamcast.errors import StorageError
from roamcast.lab.models.office_store import MemoryOfficeStore

__all__ = ["CrashError", "FaultyDisk"]


class CrashError(BaseException):
    """The host stops here. Nothing in the office may catch this."""


class FaultyDisk(MemoryOfficeStore):
    """The store of an office. Transactions are synced when they end.

    `touched` has the subscribers whose tenure changed since the last check.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.stop_at_commit = False
        self.touched: set[str] = set()

    def put_tenure(self, tenure: Tenure) -> None:
        super().put_tenure(tenure)
        self.touched.add(tenure.name)

    def drop_mailbox(self, name: str) -> None:
        super().drop_mailbox(name)
        self.touched.add(name)

    def lose_power(self) -> None:
        """Lose unsynced changes."""
        self._undo_to(0)
        self.stop_at_commit = False

    def _commit(self) -> None:
        if self.stop_at_commit:
            raise CrashError
        if self.full and self._undo:
            raise StorageError("the disk is full", hint="this is a simulation")
        self.sync()

    def sync(self) -> None:
        self._undo.clear()
