"""Folders that survive a crash."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from roamcast.durable import make_folder
from roamcast.errors import StorageError


def test_folder_and_parents_are_created_durably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every changed parent is synced; the mode applies to the last folder only."""
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    make_folder(tmp_path / "a" / "b" / "c", mode=0o700)
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a/b", "a/b/c")]
    assert modes == [stat.S_IMODE((tmp_path / "a").stat().st_mode), 0o700]
    assert modes[0] != 0o700


def test_existing_folder_is_unchanged(tmp_path: Path) -> None:
    """Its mode too."""
    (tmp_path / "a").mkdir(mode=0o755)
    make_folder(tmp_path / "a", mode=0o700)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


@pytest.mark.parametrize("path", ["file", "file/a"])
def test_existing_file_raises_storage_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        make_folder(tmp_path / path)


def test_disk_errors_raise_storage_error_with_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match="full"):
        make_folder(tmp_path / "a")
