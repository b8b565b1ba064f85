"""A disk that loses unsynced data and fills up."""

from __future__ import annotations

import pytest

from roamcast.deliver.port import LastKnownOffice
from roamcast.errors import StorageError
from roamcast.lab.torture.broken.offices import SyncsRarely
from roamcast.lab.torture.disk import CrashError, FaultyDisk


def put(disk: FaultyDisk, epoch: int) -> None:
    with disk.transaction():
        disk.put_last_known(LastKnownOffice("r", "o", epoch))


def test_committed_changes_survive_a_crash() -> None:
    """Uncommitted ones are lost."""
    disk = FaultyDisk()
    put(disk, 1)
    disk.stop_at_commit = True
    with pytest.raises(CrashError):
        put(disk, 2)
    disk.lose_power()
    assert disk.last_known("r") == LastKnownOffice("r", "o", 1)
    put(disk, 3)


def test_full_disk_refuses_writes_but_not_reads() -> None:
    disk = FaultyDisk()
    disk.full = True
    with pytest.raises(StorageError):
        put(disk, 1)
    with disk.transaction():
        assert disk.last_known("r") is None


def test_disk_that_syncs_rarely_loses_committed_changes() -> None:
    disk = SyncsRarely()
    put(disk, 1)
    assert disk.last_known("r") is not None
    disk.lose_power()
    assert disk.last_known("r") is None
