"""Nodes for tests: one for each module, and one for each test that changes it for good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import RunningNode, in_process_node


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """For tests whose changes other tests do not see."""
    with in_process_node(tmp_path_factory.mktemp("data"), scene=True) as node:
        yield node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with in_process_node(tmp_path, scene=True) as node:
        yield node
