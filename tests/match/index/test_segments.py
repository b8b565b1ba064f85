"""Tests of roamcast.match.index.segments: only intact files are used."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from roamcast.errors import CorruptionError
from roamcast.match.index.segments import SegmentFolder


def arrays() -> dict[str, np.ndarray]:
    return {"a": np.arange(5, dtype=np.uint32), "b": np.ones((3, 2)), "none": np.zeros((0, 4), np.uint64)}


def fresh(folder: SegmentFolder, checksum: str) -> None:
    """Open the file like a process that has not opened it before."""
    gc.collect()
    folder.open(checksum)


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Names, types, shapes and values; empty arrays too."""
    folder = SegmentFolder(tmp_path)
    opened = folder.open(folder.write(arrays()))
    for name, array in arrays().items():
        assert opened.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(opened.arrays[name], array)


def test_the_same_arrays_make_the_same_file(tmp_path: Path) -> None:
    """Files are named by content."""
    folder = SegmentFolder(tmp_path)
    assert folder.write(arrays()) == folder.write(arrays())
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_in_use_is_opened_once(tmp_path: Path) -> None:
    """A process maps a file once, from any folder, and can go on after it is deleted."""
    folder = SegmentFolder(tmp_path)
    checksum = folder.write(arrays())
    opened = folder.open(checksum)
    folder.sweep(frozenset())
    assert list(tmp_path.iterdir()) == []
    assert SegmentFolder(tmp_path).open(checksum) is opened
    assert opened.arrays["a"].tolist() == [0, 1, 2, 3, 4]


def test_arrays_are_read_only(tmp_path: Path) -> None:
    folder = SegmentFolder(tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        folder.open(folder.write(arrays())).arrays["a"][0] = 1


@pytest.mark.parametrize("size", [0, 1, 20, 100])
def test_a_truncated_file_is_detected(tmp_path: Path, size: int) -> None:
    """By its checksum, whatever is left of it."""
    folder = SegmentFolder(tmp_path)
    path = folder.path(checksum := folder.write(arrays()))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptionError, match="segment") as caught:
        fresh(folder, checksum)
    assert caught.value.where == str(path)
    assert caught.value.hint


def test_a_flipped_bit_is_detected(tmp_path: Path) -> None:
    folder = SegmentFolder(tmp_path)
    path = folder.path(checksum := folder.write(arrays()))
    content = bytearray(path.read_bytes())
    content[-70] ^= 4
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="damaged"):
        fresh(folder, checksum)


def test_a_missing_file_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(CorruptionError, match="missing") as caught:
        SegmentFolder(tmp_path).open("0" * 64)
    assert "0" * 64 in str(caught.value.where)


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    """Even if the file is intact."""
    import hashlib

    content = b"roamcast-segment/9\n" + bytes(100)
    checksum = hashlib.sha256(content).hexdigest()
    folder = SegmentFolder(tmp_path)
    folder.path(checksum).write_bytes(content)
    with pytest.raises(CorruptionError, match="not a roamcast-segment"):
        folder.open(checksum)


def test_a_sweep_keeps_only_the_named_files(tmp_path: Path) -> None:
    """It deletes temporary files of a writer that died, too."""
    folder = SegmentFolder(tmp_path)
    kept, removed = folder.write(arrays()), folder.write({"a": np.zeros(1)})
    (tmp_path / "x.segment.tmp").write_bytes(b"half")
    folder.sweep(frozenset([kept]))
    assert [path.name for path in tmp_path.iterdir()] == [folder.path(kept).name]
    assert removed != kept
