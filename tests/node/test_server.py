"""The server of a node: ports and data folders in use."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import in_process_node

from roamcast.errors import ConflictError
from roamcast.node.server import NodeServer
from roamcast.settings import node_settings


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    """Before anything is opened."""
    first = NodeServer(node_settings(data=tmp_path, port=0))
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(ConflictError, match="--port"):
        NodeServer(node_settings(data=tmp_path, port=port))
    first.close()


def test_a_second_node_on_the_same_data_is_refused(tmp_path: Path) -> None:
    """The first keeps running; the error is raised unchanged."""
    with in_process_node(tmp_path) as node:
        with pytest.raises(ConflictError):
            NodeServer(node_settings(data=tmp_path, port=0)).run_node()
        assert node.http.get("/healthz/live").status_code == 200
