"""A disk that fails."""

from __future__ import annotations

import pytest

from roamcast.deliver.port import Whereabouts
from roamcast.errors import StorageError
from roamcast.lab.torture.broken.machines import SyncsNowAndThen
from roamcast.lab.torture.disk import CrashError, Disk


def put(disk: Disk, epoch: int) -> None:
    with disk.transaction():
        disk.put_whereabouts(Whereabouts("r", "o", epoch))


def test_what_was_committed_outlives_a_crash() -> None:
    """And what was not is gone."""
    disk = Disk()
    put(disk, 1)
    disk.stop_at_commit = True
    with pytest.raises(CrashError):
        put(disk, 2)
    disk.lose_power()
    assert disk.whereabouts("r") == Whereabouts("r", "o", 1)
    put(disk, 3)


def test_a_full_disk_refuses_what_changes_something() -> None:
    """Reading goes on."""
    disk = Disk()
    disk.full = True
    with pytest.raises(StorageError):
        put(disk, 1)
    with disk.transaction():
        assert disk.whereabouts("r") is None


def test_a_disk_that_is_not_synced_forgets() -> None:
    """The broken one loses what it had said it has."""
    disk = SyncsNowAndThen()
    put(disk, 1)
    assert disk.whereabouts("r") is not None
    disk.lose_power()
    assert disk.whereabouts("r") is None
