"""Folders that survive a crash."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from roamcast.durable import make_folder
from roamcast.errors import StorageError


def test_a_folder_is_made_durably_with_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder that got a new one is synced; the mode is for the last one alone."""
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    make_folder(tmp_path / "a" / "b" / "c", mode=0o700)
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a/b", "a/b/c")]
    assert modes == [stat.S_IMODE((tmp_path / "a").stat().st_mode), 0o700]
    assert modes[0] != 0o700


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """Its mode too."""
    (tmp_path / "a").mkdir(mode=0o755)
    make_folder(tmp_path / "a", mode=0o700)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


@pytest.mark.parametrize("path", ["file", "file/a"])
def test_a_file_is_no_folder(tmp_path: Path, path: str) -> None:
    """StorageError that names it."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        make_folder(tmp_path / path)


def test_a_disk_that_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """StorageError with a hint."""

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match="full"):
        make_folder(tmp_path / "a")
