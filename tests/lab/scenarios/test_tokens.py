"""Stored tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roamcast.errors import CorruptionError
from roamcast.lab.scenarios.tokens import FORMAT, Identity, ScenarioTokens


def test_tokens_are_stored_for_the_next_run(tmp_path: Path) -> None:
    """Another object on the same folder finds them."""
    ScenarioTokens(tmp_path / "new", "city").put("bus-1", Identity("bus-1.2", "secret"))
    assert ScenarioTokens(tmp_path / "new", "city").get("bus-1") == Identity("bus-1.2", "secret")


def test_an_unknown_name_has_no_identity(tmp_path: Path) -> None:
    """The result is None."""
    assert ScenarioTokens(tmp_path, "city").get("bus-1") is None


def test_the_folder_is_private(tmp_path: Path) -> None:
    """Only the owner can read it."""
    ScenarioTokens(tmp_path / "new", "city")
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
def test_a_file_in_another_format_is_refused(tmp_path: Path, content: str) -> None:
    """The error names the file."""
    (tmp_path / "city.tokens.json").write_text(content)
    with pytest.raises(CorruptionError, match=r"city\.tokens\.json"):
        ScenarioTokens(tmp_path, "city")
