"""Events are numbered, journalled and acknowledged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from event_rows import ipc_body, parquet_body
from nodes import RunningNode, bearer, in_process_node, journalled

POINT = {"x": 1.5, "y": -2.0}


def test_an_event_is_in_the_journal_when_it_is_acknowledged(node: RunningNode) -> None:
    """With all its fields."""
    source = node.source()
    event = {**POINT, "id": "e", "seq": 7, "time": "2026-01-31T12:00:00.25+01:00", "terms": ["fire", "ü\u2028"]}
    answer = node.http.post("/v1/events", json={**event, "readings": {"celsius": 71.5}}, headers=bearer(source))
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1, "first_seq": 7, "last_seq": 7})
    (row,) = journalled(node.data)
    assert row == {
        "node": "local", "offset": 1, "kind": "event", "entity": "thermometer", "seq": 7, "id": "e",
        "time": datetime(2026, 1, 31, 11, 0, 0, 250000, tzinfo=UTC), **POINT, "terms": ["fire", "ü\u2028"],
        "readings": [("celsius", 71.5)], "body": None,
    }  # fmt: skip


@pytest.mark.parametrize("is_table", [False, True])
def test_all_events_of_the_largest_request_are_in_the_journal(node: RunningNode, is_table: bool) -> None:
    headers, count = bearer(node.source()), 10_000
    rows = [{**POINT, "id": str(number)} for number in range(count)]
    body = ipc_body(pa.Table.from_pylist(rows)) if is_table else json.dumps(rows).encode()
    media_type = "application/vnd.apache.arrow.stream" if is_table else "application/json"
    answer = node.http.post("/v1/events", content=body, headers={**headers, "content-type": media_type})
    assert answer.json() == {"accepted": count, "first_seq": 1, "last_seq": count}
    assert [(row["id"], row["seq"]) for row in journalled(node.data)] == [(str(n), n + 1) for n in range(count)]


def test_omitted_fields_get_defaults(node: RunningNode) -> None:
    """The source's position, source and number as id, and the present time."""
    source = node.source(x=3, y=4)
    before = datetime.now(UTC)
    assert node.http.post("/v1/events", json={}, headers=bearer(source)).status_code == 202
    (row,) = journalled(node.data)
    assert (row["x"], row["y"], row["id"], row["terms"]) == (3, 4, "thermometer:1", [])
    assert before <= row["time"] <= datetime.now(UTC)


def test_events_without_a_number_get_the_next(node: RunningNode) -> None:
    """Above all numbers used so far, including those in the same list."""
    headers = bearer(node.source())
    lists = [[POINT, {**POINT, "seq": 5}, POINT], [POINT], [{**POINT, "seq": 2}], [POINT]]
    answers = [node.http.post("/v1/events", json=events, headers=headers).json() for events in lists]
    assert [(a["first_seq"], a["last_seq"]) for a in answers] == [(6, 7), (8, 8), (2, 2), (9, 9)]
    assert [row["seq"] for row in journalled(node.data)] == [6, 5, 7, 8, 2, 9]


def test_numbers_are_never_used_twice_over_a_restart(tmp_path: Path) -> None:
    """Numbering continues above everything used before."""
    with in_process_node(tmp_path) as node:
        source = node.source()
        used = [node.http.post("/v1/events", json=POINT, headers=bearer(source)).json()["last_seq"] for _ in range(3)]
        used.append(
            node.http.post("/v1/events", json={**POINT, "seq": 4000}, headers=bearer(source)).json()["last_seq"]
        )
    with in_process_node(tmp_path) as node:
        client = node.client(source.token)
        assert client.me()["next_seq"] > max(used)
        fresh = node.http.post("/v1/events", json=POINT, headers=bearer(source)).json()["last_seq"]
        assert fresh > max(used)


def test_the_same_number_again_is_journalled_again(node: RunningNode) -> None:
    """Dropping duplicates is the pipeline's task."""
    headers = bearer(node.source())
    for _ in range(2):
        assert node.http.post("/v1/events", json={**POINT, "seq": 1}, headers=headers).status_code == 202
    assert [row["seq"] for row in journalled(node.data)] == [1, 1]


@pytest.mark.parametrize("time", [1_700_000_000.25, "2023-11-14T22:13:20.250Z", "2023-11-14T17:13:20.25-05:00"])
def test_times_are_accepted_as_seconds_or_iso_8601(node: RunningNode, time: float | str) -> None:
    node.source().publish({**POINT, "time": time})
    assert journalled(node.data)[0]["time"] == datetime(2023, 11, 14, 22, 13, 20, 250000, tzinfo=UTC)


def test_a_position_survives_a_restart(tmp_path: Path) -> None:
    """An older position is ignored."""
    with in_process_node(tmp_path) as node:
        source = node.source(x=1, y=1)
        source.move(2, 3)
        source.move(9, 9, time="2001-01-01T00:00:00Z")
    with in_process_node(tmp_path) as node:
        position = node.client(source.token).me()["position"]
        assert (position["x"], position["y"]) == (2, 3)


def test_positions_are_accepted_in_lists(node: RunningNode) -> None:
    """The latest time wins."""
    subscriber = node.subscriber()
    rows = [{**POINT, "time": 100}, {"x": 5, "y": 6, "time": 300, "entity": "anna"}, {**POINT, "time": 200}]
    answer = node.http.post("/v1/positions", json=rows, headers=bearer(subscriber))
    assert answer.json() == {"accepted": 3, "stale": 1, "pending": []}
    position = subscriber.me()["position"]
    assert position == {"x": 5, "y": 6, "time": "1970-01-01T00:05:00Z"}


def bodies(rows: list[dict[str, Any]]) -> dict[str, bytes]:
    """The same rows in all formats."""
    table = pa.Table.from_pylist(rows)
    return {
        "application/json": json.dumps(rows).encode(),
        "application/x-ndjson": b"\n".join(json.dumps(row).encode() for row in rows),
        "application/vnd.apache.arrow.stream": ipc_body(table),
        "application/vnd.apache.arrow.file": ipc_body(table, file=True),
        "application/vnd.apache.parquet": parquet_body(table),
    }


def test_events_are_accepted_in_all_formats(node: RunningNode) -> None:
    """They become the same records."""
    headers = bearer(node.source())
    rows = [{**POINT, "time": 1.5, "terms": ["fire", "ü"], "readings": {"c": 1.0}}, {**POINT, "seq": 9, "terms": []}]
    sent = bodies(rows)
    for media_type, body in sent.items():
        answer = node.http.post("/v1/events", content=body, headers={**headers, "content-type": media_type})
        assert (answer.status_code, answer.json()["accepted"]) == (202, 2)
    records = iter(journalled(node.data))
    first, *others = iter(lambda: list(islice(records, 2)), [])
    changing = dict.fromkeys(["offset", "seq", "id", "time"])
    assert first[0]["terms"] == ["fire", "ü"]
    assert first[0]["readings"] == [("c", 1.0)]
    for each in others:
        assert [{**row, **changing} for row in each] == [{**row, **changing} for row in first]
    assert len(others) == len(sent) - 1


def test_positions_are_accepted_in_all_formats(node: RunningNode) -> None:
    subscriber = node.subscriber()
    rows = [{**POINT, "time": 100.0}, {"x": 5.0, "y": 6.0, "time": 300.0, "entity": "anna"}]
    for media_type, body in bodies(rows).items():
        headers = {**bearer(subscriber), "content-type": media_type}
        answer = node.http.post("/v1/positions", content=body, headers=headers)
        assert answer.json() == {"accepted": 2, "stale": answer.json()["stale"], "pending": []}
    assert subscriber.me()["position"] == {"x": 5, "y": 6, "time": "1970-01-01T00:05:00Z"}


@pytest.mark.parametrize("path", ["events", "positions"])
def test_a_bad_row_is_refused_alike_in_all_formats(node: RunningNode, path: str) -> None:
    """422 with the number of the row; nothing is journalled."""
    headers = bearer(node.source())
    said = set()
    for media_type, body in bodies([POINT, {"x": 1.0, "y": 91.0}, {"x": 1.0, "y": 92.0}]).items():
        answer = node.http.post(f"/v1/{path}", content=body, headers={**headers, "content-type": media_type})
        said.add((answer.status_code, answer.text))
    ((status, text),) = said
    assert (status, json.loads(text)["error"]["where"]) == (422, f"{path}[1].y")
    assert journalled(node.data) == []


def test_a_column_of_a_wrong_type_is_refused(node: RunningNode) -> None:
    """With the column, and the types that it may have."""
    table = pa.table({"time": pa.array([1], pa.timestamp("us")), "x": [1.0], "y": [1.0]})
    headers = {**bearer(node.source()), "content-type": "application/vnd.apache.arrow.stream"}
    error = node.http.post("/v1/events", content=ipc_body(table), headers=headers).json()["error"]
    assert (error["code"], error["where"]) == ("bad_input", "time")
    assert "a timestamp with a time zone" in error["hint"]
