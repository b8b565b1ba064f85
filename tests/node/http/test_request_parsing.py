"""Invalid input is refused with a status, a code, its location and a hint; nothing of it is applied."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from nodes import RunningNode, bearer, in_process_node, journalled

from roamcast.errors import InputError

GOOD = {"x": 1.0, "y": 2.0}
BOX = [0, 0, 1, 1]


class Case(NamedTuple):
    path: str
    body: Any
    status: int
    where: str | None


EVENTS = {
    "unknown field": Case("events", {**GOOD, "colour": "red"}, 422, "colour"),
    "text for a number": Case("events", {"x": "1", "y": 2}, 422, "x"),
    "boolean for a number": Case("events", {"x": True, "y": 2}, 422, "x"),
    "null coordinate": Case("events", {"x": None, "y": 2}, 422, "x"),
    "x without y": Case("events", {"x": 1}, 422, "body"),
    "no point and no position": Case("events", {}, 422, "x"),
    "NaN": Case("events", b'{"x": NaN, "y": 1}', 422, "x"),
    "infinite": Case("events", b'{"x": 1, "y": -Infinity}', 422, "y"),
    "too large for a float": Case("events", b'{"x": 1e999, "y": 1}', 422, "x"),
    "longitude out of range": Case("events", {"x": 181, "y": 0}, 422, "x"),
    "latitude out of range": Case("events", {"x": 0, "y": -90.001}, 422, "y"),
    "out of range in a list": Case("events", [GOOD, {"x": 0, "y": 91}], 422, "events[1].y"),
    "wrong type in a list": Case("events", [GOOD, GOOD, GOOD, {"x": "a", "y": 1}], 422, "events[3].x"),
    "terms no list": Case("events", {**GOOD, "terms": "fire"}, 422, "terms"),
    "a term no text": Case("events", {**GOOD, "terms": ["fire", 7]}, 422, "terms[1]"),
    "empty term": Case("events", {**GOOD, "terms": [""]}, 422, "terms"),
    "long term": Case("events", {**GOOD, "terms": ["x" * 201]}, 422, "terms"),
    "many terms": Case("events", [{**GOOD, "terms": ["x"] * 1001}], 422, "events[0].terms"),
    "reading no number": Case("events", {**GOOD, "readings": {"celsius": "hot"}}, 422, "readings.celsius"),
    "reading NaN": Case("events", b'{"x": 1, "y": 1, "readings": {"a": NaN}}', 422, "readings.a"),
    "reading without a name": Case("events", {**GOOD, "readings": {"": 1}}, 422, "readings"),
    "many readings": Case("events", {**GOOD, "readings": {str(n): 1 for n in range(201)}}, 422, "readings"),
    "seq zero": Case("events", {**GOOD, "seq": 0}, 422, "seq"),
    "seq a float": Case("events", {**GOOD, "seq": 1.5}, 422, "seq"),
    "seq too large": Case("events", {**GOOD, "seq": 2**53}, 422, "seq"),
    "empty id": Case("events", {**GOOD, "id": ""}, 422, "id"),
    "time without offset": Case("events", {**GOOD, "time": "2026-01-01T00:00:00"}, 422, "time"),
    "time no time": Case("events", {**GOOD, "time": "yesterday"}, 422, "time"),
    "time a boolean": Case("events", {**GOOD, "time": True}, 422, "time"),
    "time in milliseconds": Case("events", {**GOOD, "time": 1_700_000_000_000}, 422, "time"),
    "time after 9999 by its offset": Case("events", {**GOOD, "time": "9999-12-31T23:59:59-14:00"}, 422, "time"),
    "time before 1 by its offset": Case("events", {**GOOD, "time": "0001-01-01T00:00:00+14:00"}, 422, "time"),
    "time after 9999 in seconds": Case("events", {**GOOD, "time": 253_402_300_800}, 422, "time"),
    "time before 1 in seconds": Case("events", {**GOOD, "time": -62_135_596_800.00001}, 422, "time"),
    "time after 9999 when rounded": Case("events", {**GOOD, "time": 253_402_300_799.99999}, 422, "time"),
    "time beyond all numbers": Case("events", {**GOOD, "time": 10**400}, 422, "time"),
    "time infinite": Case("events", b'{"x": 1, "y": 1, "time": 1e999}', 422, "time"),
    "time far ahead": Case("events", {**GOOD, "time": "9999-01-01T00:00:00Z"}, 422, "time"),
    "time far ahead in a list": Case("events", [GOOD, {**GOOD, "time": 4e9}], 422, "events[1].time"),
    "time a list": Case("events", {**GOOD, "time": [1]}, 422, "time"),
    "another's source": Case("events", {**GOOD, "source": "other"}, 403, "source"),
    "another's source in a list": Case("events", [GOOD, {**GOOD, "source": "other"}], 403, "events[1].source"),
    "empty list": Case("events", [], 422, "events"),
    "long list": Case("events", [GOOD] * 10_001, 422, "events"),
    "a number": Case("events", 7, 422, "body"),
    "null in a list": Case("events", [None], 422, "events[0]"),
    "far too large": Case("events", {"x": 10**400, "y": 1}, 422, "x"),
    "no JSON": Case("events", b"{", 400, "body"),
    "bottomless": Case("events", b"[" * 100_000, 400, "body"),
    "nothing": Case("events", b"", 400, "body"),
    "not UTF-8": Case("events", b'{"id": "\xff"}', 400, "body"),
    "half a character": Case("events", b'{"id": "\\ud800"}', 400, "body"),
    "position unknown field": Case("positions", {**GOOD, "z": 1}, 422, "z"),
    "position incomplete": Case("positions", {"x": 1}, 422, "y"),
    "position out of range": Case("positions", [GOOD, {"x": 0, "y": 100}], 422, "positions[1].y"),
    "position after 9999": Case("positions", {**GOOD, "time": "9999-12-31T23:59:59-14:00"}, 422, "time"),
    "position far ahead": Case("positions", {**GOOD, "time": "9999-01-01T00:00:00Z"}, 422, "time"),
    "position far ahead in a list": Case("positions", [GOOD, {**GOOD, "time": 4e9}], 422, "positions[1].time"),
    "position before 1": Case("positions", {**GOOD, "time": "0001-01-01T00:00:00+14:00"}, 422, "time"),
    "position of another": Case("positions", {**GOOD, "entity": "other"}, 403, "entity"),
}

SUBSCRIPTIONS = {
    "neither box nor terms": Case("subscriptions", {}, 422, "body"),
    "empty terms alone": Case("subscriptions", {"terms": []}, 422, "body"),
    "unknown field": Case("subscriptions", {"terms": ["a"], "limit": 3}, 422, "limit"),
    "three numbers": Case("subscriptions", {"box": [0, 0, 1]}, 422, "box"),
    "five numbers": Case("subscriptions", {"box": [0, 0, 1, 1, 1]}, 422, "box"),
    "box an object": Case("subscriptions", {"box": {"min_x": 0}}, 422, "box"),
    "region, as it was once": Case("subscriptions", {"region": {"min_x": 0}, "terms": ["a"]}, 422, "region"),
    "a border no number": Case("subscriptions", {"box": [0, "0", 1, 1]}, 422, "box[1]"),
    "reversed box": Case("subscriptions", {"box": [0, 2, 1, 1]}, 422, "box[1]"),
    "box out of range": Case("subscriptions", {"box": [0, 0, 200, 1]}, 422, "box[2]"),
    "box NaN": Case("subscriptions", b'{"box": [NaN, 0, 1, 1]}', 422, "box[0]"),
    "swapped corners": Case("subscriptions", {"box": [170, 0, -170, 1]}, 422, "box[0]"),
    "no crossing": Case("subscriptions", {"box": BOX, "crosses_antimeridian": True}, 422, "crosses_antimeridian"),
    "crossing without a box": Case("subscriptions", {"terms": ["a"], "crosses_antimeridian": True}, 422, "body"),
    "many terms": Case("subscriptions", {"terms": [str(n) for n in range(65)]}, 422, "terms"),
    "empty term": Case("subscriptions", {"terms": [""]}, 422, "terms"),
    "bad id": Case("subscriptions", {"id": "a b", "terms": ["a"]}, 422, "id"),
    "LACL and terms": Case("subscriptions", {"lacl": "Select", "terms": ["a"]}, 422, "body"),
    "LACL no text": Case("subscriptions", {"lacl": 7}, 422, "lacl"),
    "acknowledge nothing": Case("mailbox/ack", {}, 422, "through"),
    "acknowledge a text": Case("mailbox/ack", {"through": "1"}, 422, "through"),
    "acknowledge before the beginning": Case("mailbox/ack", {"through": -1}, 422, "through"),
}

ENTITIES = {
    "no id": Case("sources", {}, 422, "id"),
    "empty id": Case("sources", {"id": ""}, 422, "id"),
    "id with a slash": Case("subscribers", {"id": "a/b"}, 422, "id"),
    "id with a newline": Case("subscribers", {"id": "a\n"}, 422, "id"),
    "long id": Case("sources", {"id": "a" * 129}, 422, "id"),
    "id a number": Case("sources", {"id": 7}, 422, "id"),
    "x without y": Case("sources", {"id": "a", "x": 1}, 422, "body"),
    "out of range": Case("subscribers", {"id": "a", "x": 1, "y": 95}, 422, "y"),
    "attribute a list": Case("sources", {"id": "a", "attributes": {"a": []}}, 422, "attributes"),
    "attribute null": Case("sources", {"id": "a", "attributes": {"a": None}}, 422, "attributes"),
    "attribute NaN": Case("sources", b'{"id": "a", "attributes": {"a": NaN}}', 422, "attributes"),
    "attribute beyond all numbers": Case("sources", {"id": "a", "attributes": {"a": 10**400}}, 422, "attributes"),
    "many attributes": Case("sources", {"id": "a", "attributes": {str(n): n for n in range(65)}}, 422, "attributes"),
}

POINT = {"geometry": {"type": "Point", "coordinates": [1, 2]}, "label": "", "kind": "k"}
SCENES = {
    "no layer": Case("scene", {"set": {"a": POINT}}, 422, "layer"),
    "the node's layer": Case("scene", {"layer": "sources", "clear": True}, 422, "layer"),
    "unknown geometry": Case(
        "scene", {"layer": "l", "set": {"a": {"geometry": {"type": "Blob"}}}}, 422, "set.a.geometry"
    ),
    "ttl zero": Case("scene", {"layer": "l", "set": {"a": POINT}, "ttl": 0}, 422, "ttl"),
    "unknown field": Case("scene", {"layer": "l", "colour": "red"}, 422, "colour"),
}


def tokens_of(node: RunningNode) -> dict[str, dict[str, str]]:
    return {
        "source": bearer(node.source()),
        "subscriber": bearer(node.subscriber()),
        "operator": bearer(node.operator()),
        "nobody": {},
    }


@pytest.fixture(scope="module")
def tokens(shared_node: RunningNode) -> dict[str, dict[str, str]]:
    return tokens_of(shared_node)


def cases() -> list[Any]:
    tables = {"source": EVENTS, "subscriber": SUBSCRIPTIONS, "nobody": ENTITIES, "operator": SCENES}
    return [
        pytest.param(caller, case, id=f"{case.path} {name}")
        for caller, table in tables.items()
        for name, case in table.items()
    ]


def post(node: RunningNode, case: Case, headers: dict[str, str]) -> httpx.Response:
    content = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    return node.http.post(f"/v1/{case.path}", content=content, headers=headers)


@pytest.mark.parametrize(("caller", "case"), cases())
def test_invalid_input_is_refused_with_location_and_hint(
    shared_node: RunningNode, tokens: dict[str, dict[str, str]], caller: str, case: Case
) -> None:
    """In JSON."""
    answer = post(shared_node, case, tokens[caller])
    error = answer.json()["error"]
    assert (answer.status_code, error["where"]) == (case.status, case.where)
    assert error["message"]
    assert error["hint"]
    assert set(error) == {"code", "message", "where", "hint"}


def test_nothing_invalid_is_journalled(node: RunningNode) -> None:
    """Neither alone nor in a list with valid ones."""
    tokens = tokens_of(node)
    for case in cases():
        caller, bad = case.values
        assert post(node, bad, tokens[caller]).status_code >= 400
    assert journalled(node.data) == []


def test_an_invalid_event_refuses_the_whole_list(node: RunningNode) -> None:
    """None of the five is journalled; the next valid list is."""
    source = node.source()
    five = [{**GOOD, "terms": [str(n)]} for n in range(5)]
    bad = [*five[:2], {**GOOD, "terms": [3]}, *five[3:]]
    assert node.http.post("/v1/events", json=bad, headers=bearer(source)).status_code == 422
    assert journalled(node.data) == []
    assert node.http.post("/v1/events", json=five, headers=bearer(source)).status_code == 202
    assert [row["terms"] for row in journalled(node.data)] == [["0"], ["1"], ["2"], ["3"], ["4"]]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ("0001-01-01T14:00:00+14:00", "0001-01-01T00:00:00Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (-62_135_596_800, "0001-01-01T00:00:00Z"),
    ],
)
def test_the_earliest_and_latest_time_are_accepted(tmp_path: Path, moment: str | int, expected: str) -> None:
    """If times may be ahead; they are returned unchanged."""
    with in_process_node(tmp_path, limits={"ahead": 1e12}) as node:
        client = node.source()
        client.move(1, 2, time=moment)
        client.publish({"time": moment})
        assert client.me()["position"]["time"] == expected


@pytest.mark.parametrize(("seconds", "status"), [(240, 200), (360, 422)])
def test_a_clock_may_be_five_minutes_ahead(shared_node: RunningNode, seconds: int, status: int) -> None:
    """A position from further ahead would hide all earlier ones."""
    client = shared_node.source(f"ahead-{seconds}", x=0, y=0)
    later = {**GOOD, "time": time.time() + seconds}
    answers = [
        shared_node.http.post(f"/v1/{what}", json=later, headers=bearer(client)) for what in ("events", "positions")
    ]
    assert [answer.status_code for answer in answers] == ([status] * 2 if status >= 300 else [202, 200])
    if status == 422:
        assert all("clock" in answer.json()["error"]["hint"] for answer in answers)
        assert client.move(5, 5)
        assert client.me()["position"]["x"] == 5


def test_points_outside_the_space_are_refused(tmp_path: Path) -> None:
    """In positions, entities, events and subscriptions. Other requests are not affected."""
    far = {"x": 1e200, "y": 0}
    with in_process_node(tmp_path, space="planar") as node:
        source, subscriber = bearer(node.source(x=0, y=0)), bearer(node.subscriber(x=0, y=0))
        texts = (
            "Select all() Where &location in box(0, 0, 1e200, 1)",
            "Select all() Where &location in circle(1e200, 0, 5)",
            "Select Where &location in nearest Life-control #location in circle(1e200, 0, 5)",
        )
        refused = [
            node.http.post("/v1/positions", json=far, headers=subscriber),
            node.http.post("/v1/sources", json={"id": "far", **far}),
            node.http.post("/v1/events", json=far, headers=source),
            *(node.http.post("/v1/subscriptions", json={"lacl": text}, headers=subscriber) for text in texts),
        ]
        assert [answer.status_code for answer in refused] == [422] * 6
        assert [answer.json()["error"]["where"] for answer in refused[:3]] == ["x"] * 3
        assert all("1e+200 is outside" in answer.json()["error"]["message"] for answer in refused)


def test_planar_space_has_no_antimeridian(tmp_path: Path) -> None:
    """There, a box with min_x > max_x is refused, and 200 is a valid x."""
    with in_process_node(tmp_path, space="planar") as node:
        headers = bearer(node.subscriber())
        reversed_box = {"box": [200, 0, 1, 1]}
        answer = node.http.post("/v1/subscriptions", json=reversed_box, headers=headers)
        assert (answer.status_code, answer.json()["error"]["where"]) == (422, "box[0]")


def test_geographic_space_has_an_antimeridian(shared_node: RunningNode) -> None:
    client = shared_node.subscriber("sailor")
    client.subscribe(box=(170, -10, -170, 10), crosses_antimeridian=True, id="across")
    with pytest.raises(InputError, match=r"box\[0\]: 170 is greater than max_x -170"):
        client.subscribe(box=(170, -10, -170, 10))
    with pytest.raises(InputError, match=r"crosses_antimeridian"):
        client.subscribe(box=(-170, -10, 170, 10), crosses_antimeridian=True)
    assert client.subscription("across").lacl == "Select all() Where &location in box(170, -10, -170, 10)"


@pytest.mark.parametrize("announced", [True, False], ids=["with Content-Length", "in pieces"])
def test_a_body_over_the_limit_is_refused(shared_node: RunningNode, announced: bool) -> None:
    """413, whether its length is declared or found while reading."""
    headers = bearer(shared_node.source(f"large-{announced}"))
    piece = b" " * 65536

    def pieces() -> Iterator[bytes]:
        for _ in range(200):
            yield piece

    content = piece * 200 if announced else pieces()
    answer = shared_node.http.post("/v1/events", content=content, headers=headers)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "capacity"


def test_a_body_at_the_limit_is_accepted(tmp_path: Path) -> None:
    body = json.dumps(GOOD).encode()
    with in_process_node(tmp_path, limits={"body": 500}) as node:
        headers = bearer(node.source("s"))
        assert node.http.post("/v1/events", content=body.ljust(500), headers=headers).status_code == 202
        assert node.http.post("/v1/events", content=body.ljust(501), headers=headers).status_code == 413


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("limit=0", "limit"),
        ("limit=many", "limit"),
        ("after=-1", "after"),
        ("wait=31", "wait"),
        ("wait=-1", "wait"),
        ("wait=nan", "wait"),
    ],
)
def test_invalid_query_parameters_are_refused(
    shared_node: RunningNode, tokens: dict[str, dict[str, str]], query: str, where: str
) -> None:
    """The error names the parameter."""
    answer = shared_node.http.get(f"/v1/mailbox?{query}", headers=tokens["subscriber"])
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, where)


def test_unknown_paths_have_json_errors(shared_node: RunningNode) -> None:
    """404 and 405, in the form of all errors."""
    for answer, status in ((shared_node.http.get("/v1/nothing"), 404), (shared_node.http.put("/v1/me"), 405)):
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"code", "message", "where", "hint"}
