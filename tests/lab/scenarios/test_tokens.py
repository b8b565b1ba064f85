"""The file of tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roamcast.errors import CorruptionError
from roamcast.lab.scenarios.tokens import FORMAT, Identity, Tokens


def test_tokens_are_there_in_the_next_run(tmp_path: Path) -> None:
    """What was kept is found by another object on the same folder."""
    Tokens(tmp_path / "new", "city").keep("bus-1", Identity("bus-1.2", "secret"))
    assert Tokens(tmp_path / "new", "city").get("bus-1") == Identity("bus-1.2", "secret")


def test_unknown_name_has_no_identity(tmp_path: Path) -> None:
    """A name that was never kept gives None."""
    assert Tokens(tmp_path, "city").get("bus-1") is None


def test_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Nobody else can read the folder that the tokens lie in."""
    Tokens(tmp_path / "new", "city")
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        json.dumps({"format": "roamcast-tokens/9"}),
        json.dumps({"format": FORMAT, "tokens": {"bus-1": ["only one"]}}),
        json.dumps({"format": FORMAT, "tokens": []}),
    ],
)
def test_foreign_file_is_refused(tmp_path: Path, content: str) -> None:
    """A file that is not in our format is named, not guessed at."""
    (tmp_path / "city.tokens.json").write_text(content)
    with pytest.raises(CorruptionError, match=r"city\.tokens\.json"):
        Tokens(tmp_path, "city")
