"""Forwarding queues: what the pipeline leaves for a link is taken once, in order."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox, PipelineStatus
from roamcast.node.peers.forwarding import ForwardedEvents, ForwardingQueues, decode_events, encode_events, pipeline_key

LINK = "a" * 32
OFFICE = f"south@{LINK}"
FIRST, SECOND = pipeline_key("first"), pipeline_key("second")


def leave(outbox: Outbox, batch: int, *numbers: int, pipeline: str = "first") -> None:
    rows = [{"receiver": f"@{LINK}", "number": number, "body": f'{{"n":{number}}}'} for number in numbers]
    outbox.put(OFFICE, pipeline, batch, pa.Table.from_pylist(rows, schema=LETTERS_SCHEMA))


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "outbox")


@pytest.fixture
def queues(outbox: Outbox) -> ForwardingQueues:
    return ForwardingQueues(outbox, "south", keep=60)


def events(pipeline: str, first: int, last: int) -> ForwardedEvents:
    return ForwardedEvents(pipeline, first, tuple(f'{{"n":{n}}}'.encode() for n in range(first, last + 1)))


def test_events_stay_until_they_are_journalled_at_the_other_end(outbox: Outbox, queues: ForwardingQueues) -> None:
    """Which the next request says."""
    assert queues.take(LINK, {}) is None
    leave(outbox, 1, 1, 2)
    leave(outbox, 2, 3)
    for _ in range(2):
        assert queues.take(LINK, {}) == events(FIRST, 1, 2)
    assert queues.take(LINK, {FIRST: 1}) == events(FIRST, 2, 2)
    assert queues.take(LINK, {FIRST: 2}) == events(FIRST, 3, 3)
    assert len(outbox.waiting(OFFICE)) == 1
    assert queues.take(LINK, {FIRST: 3}) is None
    assert (outbox.waiting(OFFICE), queues.forwarded) == ([], 3)
    leave(outbox, 3, 4)
    assert queues.take(LINK, {FIRST: 3}) == events(FIRST, 4, 4)


def test_events_of_an_earlier_pipeline_come_first(outbox: Outbox, queues: ForwardingQueues) -> None:
    """Though the new one counts its batches and letters from the start again."""
    leave(outbox, 7, 40, 41)
    past = time.time() - 10
    os.utime(outbox.waiting(OFFICE)[0], (past, past))
    leave(outbox, 0, 1, pipeline="second")
    assert queues.take(LINK, {FIRST: 39}) == events(FIRST, 40, 41)
    assert queues.take(LINK, {FIRST: 41}) == events(SECOND, 1, 1)
    assert queues.take(LINK, {FIRST: 41, SECOND: 1}) is None


def test_a_clock_that_is_set_back_changes_no_order(outbox: Outbox, queues: ForwardingQueues) -> None:
    """Batches of a pipeline are taken by number. That a pipeline is an earlier one is known by its first batch."""
    leave(outbox, 9, 1)
    leave(outbox, 10, 2)
    leave(outbox, 3, 1, pipeline="second")
    now = time.time()
    for path, age in zip(outbox.waiting(OFFICE), (20, 10, 30), strict=True):  # of the second, and two of the first
        os.utime(path, (now - age, now - age))
    assert queues.take(LINK, {}) == events(FIRST, 1, 1)
    assert queues.take(LINK, {FIRST: 1}) == events(FIRST, 2, 2)
    assert queues.take(LINK, {FIRST: 2}) == events(SECOND, 1, 1)


def test_a_response_is_limited(outbox: Outbox) -> None:
    """But has at least one event."""
    leave(outbox, 1, *range(1, 10))
    assert ForwardingQueues(outbox, "south", keep=60, max_bytes=20).take(LINK, {}) == events(FIRST, 1, 2)
    assert ForwardingQueues(outbox, "south", keep=60, max_bytes=1).take(LINK, {FIRST: 2}) == events(FIRST, 3, 3)


def test_a_file_is_read_once(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many responses it takes, and to delete it."""
    leave(outbox, 1, 1, 2, 3)
    paths = []
    read = outbox.read
    monkeypatch.setattr(outbox, "read", lambda path: paths.append(path) or read(path))
    queues = ForwardingQueues(outbox, "south", keep=60, max_bytes=1)
    for number in (1, 2, 3):
        assert queues.take(LINK, {FIRST: number - 1}) == events(FIRST, number, number)
    assert queues.take(LINK, {FIRST: 3}) is None
    assert (len(paths), outbox.waiting(OFFICE)) == (1, [])


def test_an_empty_queue_is_not_looked_at_again(outbox: Outbox, queues: ForwardingQueues) -> None:
    """Until something is put there."""
    assert not queues.may_have_events(LINK)
    leave(outbox, 1, 1)
    assert queues.may_have_events(LINK)
    assert queues.take(LINK, {FIRST: 1}) is None
    past = time.time() - 10
    os.utime(outbox.folder_of(OFFICE), (past, past))
    assert queues.take(LINK, {FIRST: 1}) is None
    assert not queues.may_have_events(LINK)
    leave(outbox, 2, 2)
    assert queues.may_have_events(LINK)


def test_what_nobody_takes_is_dropped_and_counted(outbox: Outbox, queues: ForwardingQueues) -> None:
    """Only what is too old."""
    leave(outbox, 1, 1, 2)
    leave(outbox, 2, 3)
    past = time.time() - 61
    os.utime(outbox.waiting(OFFICE)[0], (past, past))
    assert queues.losses() == []
    queues.expire()
    assert queues.dropped == 2
    (loss,) = queues.losses()
    assert "2 events" in loss.detail
    assert queues.take(LINK, {}) == events(FIRST, 3, 3)


def test_events_round_trip() -> None:
    for value in (None, events(FIRST, 5, 9)):
        assert decode_events(encode_events(value)) == value


def test_a_link_is_drained_up_to_where_the_pipeline_has_read(outbox: Outbox, queues: ForwardingQueues) -> None:
    """If all that it left is journalled at the other end."""
    assert queues.drained_through(LINK, {}) == {}
    outbox.write_status(PipelineStatus("first", 1, {}, read_offsets={"south": 17, "other": 30}))
    assert queues.drained_through(LINK, {}) == {"south": 17, "other": 30}
    leave(outbox, 1, 1, 2)
    leave(outbox, 2, 3)
    for after in ({}, {FIRST: 1}, {FIRST: 2}, {SECOND: 9}):
        assert queues.drained_through(LINK, after) == {}
    assert queues.drained_through(LINK, {FIRST: 3}) == {"south": 17, "other": 30}
    assert len(outbox.waiting(OFFICE)) == 2
    next(iter(outbox.waiting(OFFICE))).write_bytes(b"damaged")
    assert ForwardingQueues(outbox, "south", keep=60).drained_through(LINK, {FIRST: 3}) == {}
