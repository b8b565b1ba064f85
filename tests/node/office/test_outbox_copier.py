"""A node whose outbox is on shared storage."""

from __future__ import annotations

import logging
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from nodes import in_process_node, letter_body, problems, until
from storages import new_folder

from roamcast.deliver.outbox import LETTERS_SCHEMA, PipelineStatus
from roamcast.deliver.shared_outbox import SharedOutbox
from roamcast.errors import InputError


def test_letters_come_from_storage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While it does not respond, the node says so and accepts everything else; then it goes on."""
    place = tmp_path / "storage"
    storage = new_folder(place)
    outbox = SharedOutbox(storage, tmp_path / "pipeline")

    def put(number: int) -> None:
        body = orjson.dumps(letter_body(f"event-{number}")).decode()
        rows = [{"receiver": "anna", "number": number, "body": body}]
        outbox.put("local", "p", number, pa.Table.from_pylist(rows, LETTERS_SCHEMA))
        outbox.write_status(
            PipelineStatus("p", number, {}, running_batch=9, running_since=5, waiting_for_storage="full")
        )

    with in_process_node(tmp_path / "node", storage=str(place), storage_poll=0.02) as node:
        anna = node.subscriber("anna")
        put(1)
        until(anna.pull, "the first letter")
        assert problems(node) == {}
        assert node.http.get("/healthz").json()["pipeline"]["waiting_for_storage"] == "full"
        with caplog.at_level(logging.ERROR):
            place.rename(tmp_path / "elsewhere")
            until(lambda: "outbox_unread" in problems(node), "the node to notice")
        assert "is it mounted" in problems(node)["outbox_unread"]["detail"]
        node.source("thermometer").publish([{"x": 1, "y": 1}])
        (tmp_path / "elsewhere").rename(place)
        put(2)
        until(lambda: len(anna.pull()) == 2, "the second letter")
        until(lambda: not problems(node), "the node to be well")
        until(lambda: not storage.files("outbox/local"), "the batches to be deleted")
    assert [path.name for path in (tmp_path / "node" / "outbox").glob("*.json")] == ["status-local.json"]


def test_a_bad_storage_keeps_a_node_from_starting(tmp_path: Path) -> None:
    """It could never be reached."""
    with pytest.raises(InputError, match="unknown kind of storage"), in_process_node(tmp_path, storage="nothing://x"):
        pass
