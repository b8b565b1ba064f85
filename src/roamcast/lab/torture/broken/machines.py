"""Offices and disks that acknowledge what is not on disk, or forget what was unfinished."""

from __future__ import annotations

from collections.abc import Sequence

from roamcast.deliver.messages import Effect, Message, Wake
from roamcast.deliver.office import Office
from roamcast.deliver.pending_work import Kind
from roamcast.errors import StorageError
from roamcast.lab.torture.disk import Disk

__all__ = ["FinishesNoHandOver", "IgnoresFullDisks", "NoRecovery", "SyncsNowAndThen"]

_NOW_AND_THEN = 20


class SyncsNowAndThen(Disk):
    """Letters are acknowledged before they are synced"""

    def __init__(self) -> None:
        super().__init__()
        self._commits = 0

    def sync(self) -> None:
        self._commits += 1
        if self._commits % _NOW_AND_THEN == 0:
            super().sync()


class IgnoresFullDisks(Office):
    """Effects leave although the disk has refused"""

    def handle_all(self, messages: Sequence[Message], now: int) -> list[list[Effect] | Exception]:
        outcomes: list[list[Effect] | Exception] = []
        try:
            with self._desk.store.transaction():
                outcomes += [self._outcome(message, now) for message in messages]
        except StorageError:
            pass
        return outcomes


class NoRecovery(Office):
    """After a crash nothing is gone on with until somebody asks"""

    def recover(self) -> list[Effect]:
        return []


class FinishesNoHandOver(Office):
    """After a crash hand-overs are not gone on with"""

    def recover(self) -> list[Effect]:
        return [wake for wake in super().recover() if not (isinstance(wake, Wake) and wake.duty.kind is Kind.HAND)]
