"""A node for the commands under test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import RunningNode, running_node


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    """A running node that the commands call, with a token file and a working directory of the test."""
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens" / "tokens.json"))
    monkeypatch.chdir(tmp_path)
    with running_node(tmp_path / "data") as node:
        monkeypatch.setenv("ROAMCAST_URL", node.url)
        yield node
