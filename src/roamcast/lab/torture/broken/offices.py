"""Broken offices and disks: acknowledge data that is not on disk, or forget unfinished work."""

from __future__ import annotations

from collections.abc import Sequence

from roamcast.deliver.messages import OfficeEffect, OfficeInput, ScheduleWork
from roamcast.deliver.office import Office
from roamcast.deliver.port import WorkKind
from roamcast.errors import StorageError
from roamcast.lab.torture.disk import FaultyDisk

__all__ = ["ForgetsHandOvers", "IgnoresFullDisk", "NoRecovery", "SyncsRarely"]

_COMMITS_PER_SYNC = 20


class SyncsRarely(FaultyDisk):
    """Letters are acknowledged before they are synced"""

    def __init__(self) -> None:
        super().__init__()
        self._commits = 0

    def sync(self) -> None:
        self._commits += 1
        if self._commits % _COMMITS_PER_SYNC == 0:
            super().sync()


class IgnoresFullDisk(Office):
    """Effects are carried out although the disk was full"""

    def handle_all(self, messages: Sequence[OfficeInput], now: int) -> list[list[OfficeEffect] | Exception]:
        outcomes: list[list[OfficeEffect] | Exception] = []
        try:
            with self._context.store.transaction():
                outcomes += [self._outcome(message, now) for message in messages]
        except StorageError:
            pass
        return outcomes


class NoRecovery(Office):
    """After a crash no work continues until a client asks"""

    def recover(self) -> list[OfficeEffect]:
        return []


class ForgetsHandOvers(Office):
    """After a crash hand-overs do not continue"""

    def recover(self) -> list[OfficeEffect]:
        def is_hand_over(effect: OfficeEffect) -> bool:
            return isinstance(effect, ScheduleWork) and effect.work.kind is WorkKind.HAND_OVER

        return [effect for effect in super().recover() if not is_hand_over(effect)]
