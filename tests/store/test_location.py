"""Where the stores of a node are."""

from __future__ import annotations

from pathlib import Path

import pytest

from roamcast.errors import CorruptionError
from roamcast.store.location import FORMAT, REGISTRY_FILE, read_location, record_location

URL = "postgresql://roamcast:swordfish@db/roamcast"


def test_a_recorded_location_is_read(tmp_path: Path) -> None:
    """The last one counts."""
    folder = tmp_path / "nodes" / "north"
    for url in (URL, None, URL, URL):
        record_location(folder, url)
        assert read_location(folder) == (url or folder)
    assert [path.name for path in folder.iterdir()] == ["store.json"]


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    """Also after a crash left a file that others can read."""
    (tmp_path / "store.json.tmp").touch(0o644)
    record_location(tmp_path, URL)
    assert (tmp_path / "store.json").stat().st_mode & 0o777 == 0o600


def test_an_unchanged_location_is_not_written_again(tmp_path: Path) -> None:
    record_location(tmp_path, URL)
    before = (tmp_path / "store.json").stat()
    record_location(tmp_path, URL)
    assert (tmp_path / "store.json").stat().st_ino == before.st_ino


def test_without_a_record_a_registry_in_the_folder_counts(tmp_path: Path) -> None:
    """Of a node that has not run since locations are recorded. Otherwise nothing is guessed."""
    with pytest.raises(CorruptionError, match=r"not known where.*start the node once"):
        read_location(tmp_path)
    (tmp_path / REGISTRY_FILE).touch()
    assert read_location(tmp_path) == tmp_path


@pytest.mark.parametrize(
    "content", ["", "swordfish", '{"url":"swordfish"}', f'{{"format":"{FORMAT}","url":["swordfish"]}}', "[]"]
)
def test_an_unreadable_record_is_refused(tmp_path: Path, content: str) -> None:
    """Without showing its content."""
    (tmp_path / REGISTRY_FILE).touch()
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(CorruptionError, match=r"store.json: unreadable") as caught:
        read_location(tmp_path)
    assert "swordfish" not in str(caught.value)
    assert caught.value.__cause__ is None
