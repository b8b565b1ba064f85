"""The data folder."""

from __future__ import annotations

import errno
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from nodes import in_process_node

from roamcast.errors import ConflictError, CorruptionError, InputError, StorageError
from roamcast.node.data_folder import DataFolder


def test_a_folder_is_created_and_opened_again(tmp_path: Path) -> None:
    """It has the format, the space and an id, and nothing else."""
    ids = {DataFolder.open(tmp_path / "a" / "b", "planar").id for _ in range(2)}
    (description,) = (tmp_path / "a" / "b").iterdir()
    assert description.name == "roamcast.json"
    assert json.loads(description.read_text()) == {"format": "roamcast-data/2", "space": "planar", "id": ids.pop()}
    assert not ids


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    """An existing folder keeps its mode."""
    (tmp_path / "old").mkdir(mode=0o755)
    for name, mode in (("new", 0o700), ("old", 0o755)):
        DataFolder.open(tmp_path / name, "planar")
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_new_folders_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every parent of a new folder is synced."""
    synced: set[Path] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    DataFolder.open(tmp_path / "a" / "b", "planar").node_folder("local")
    root = tmp_path / "a" / "b"
    assert {tmp_path, tmp_path / "a", root, root / "nodes"} <= synced


def test_another_space_is_refused(tmp_path: Path) -> None:
    """The hint names the right one."""
    DataFolder.open(tmp_path, "planar")
    with pytest.raises(ConflictError, match="--space planar"), in_process_node(tmp_path, space="geographic"):
        pass


@pytest.mark.parametrize("content", ['{"format": "roamcast-data/1"}', '{"format": "roamcast-data/2"}', "[]", "rubbish"])
def test_another_format_is_refused(tmp_path: Path, content: str) -> None:
    """With a hint, and unchanged."""
    (tmp_path / "roamcast.json").write_text(content)
    with pytest.raises(ConflictError, match="--data"):
        DataFolder.open(tmp_path, "planar")
    assert (tmp_path / "roamcast.json").read_text() == content


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    """StorageError with its path."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        DataFolder.open(tmp_path / "file", "planar")


def test_the_operator_token_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk failure leaves nothing behind."""

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StorageError, match="full"):
            DataFolder(tmp_path).operator_token()
    assert list(tmp_path.iterdir()) == []
    assert len(DataFolder(tmp_path).operator_token()) >= 40


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    """With a hint."""
    (tmp_path / "operator.token").write_text("\n")
    with pytest.raises(CorruptionError, match="delete it"):
        DataFolder(tmp_path).operator_token()


def test_nodes_that_start_together_share_the_operator_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one created counts for both."""
    together = Barrier(2, timeout=20)
    fsync = os.fsync

    def fsync_together(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() != tmp_path:
            together.wait()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync_together)
    with ThreadPoolExecutor(2) as threads:
        nodes = [threads.submit(DataFolder(tmp_path).operator_token) for _ in range(2)]
        first, second = (node.result() for node in nodes)
    assert first == second == (tmp_path / "operator.token").read_text().strip()


def test_an_invalid_file_of_places_keeps_the_node_from_starting(tmp_path: Path) -> None:
    """InputError with the file, before anything is created."""
    (tmp_path / "rooms.geojson").write_text("{}")
    for file in ("rooms.geojson", "none.geojson"):
        with pytest.raises(InputError, match=file), in_process_node(tmp_path / "data", places=tmp_path / file):
            pass
    assert not (tmp_path / "data").exists()
