"""Large invalid bodies cost little: parsing stops early, and other requests are answered meanwhile."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nodes import RunningNode, bearer, in_process_node

from roamcast.node import schemas, validation_errors
from roamcast.node.columns import rows

ANONYMOUS = {
    "/v1/sources", "/v1/subscribers", "/v1/gateways", "/v1/arrivals", "/v1/mailboxes/pull", "/v1/office/join"
}  # fmt: skip
EVENT = {"x": 1, "y": 2, "terms": ["fire"]}


@pytest.fixture(scope="module")
def tokens(shared_node: RunningNode) -> dict[str, dict[str, str]]:
    return {
        "nobody": {},
        "source": bearer(shared_node.source()),
        "subscriber": bearer(shared_node.subscriber()),
        "operator": bearer(shared_node.operator()),
    }


@pytest.fixture
def checked_terms(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The terms of every event that was validated."""
    checked: list[Any] = []
    check = schemas._check_terms

    def count(terms: Any, *limits: Any) -> Any:
        checked.append(terms)
        return check(terms, *limits)

    monkeypatch.setattr(schemas, "_check_terms", count)
    return checked


@pytest.mark.parametrize(
    ("caller", "path", "body", "where"),
    [
        ("nobody", "mailboxes/pull", [0] * 20_000, "mailboxes[0]"),
        ("nobody", "mailboxes/pull", [{"token": "a"}, *[{}] * 20_000], "mailboxes[1].token"),
        ("source", "events", [EVENT, EVENT, *[0] * 20_000], "events[2]"),
        ("source", "events", {"terms": ["a", *[0] * 20_000]}, "terms[1]"),
        ("source", "positions", [0] * 20_000, "positions[0]"),
        ("subscriber", "letters", [0] * 20_000, "letters[0]"),
        ("subscriber", "subscriptions", {"terms": [0] * 20_000}, "terms[0]"),
        ("operator", "scene", {"layer": "l", "remove": [0] * 20_000}, "remove[0]"),
    ],
)
def test_parsing_stops_at_the_first_invalid_element(
    shared_node: RunningNode, tokens: dict[str, dict[str, str]], caller: str, path: str, body: Any, where: str
) -> None:
    """The error names it, and counts no others."""
    answer = shared_node.http.post(f"/v1/{path}", json=body, headers=tokens[caller])
    error = answer.json()["error"]
    assert (answer.status_code, error["where"], error["hint"]) == (422, where, "see /docs for the schema")


def test_several_errors_of_one_element_are_counted(shared_node: RunningNode, tokens: dict[str, dict[str, str]]) -> None:
    wrong = {"x": "1", "y": "2", "colour": "red"}
    answer = shared_node.http.post("/v1/events", json=[EVENT, wrong], headers=tokens["source"])
    error = answer.json()["error"]
    assert (error["where"], error["hint"]) == ("events[1].x", "see /docs for the schema; 2 more errors")


def test_a_list_is_validated_only_up_to_its_limit(tmp_path: Path, checked_terms: list[Any]) -> None:
    """However long it is, and also if all elements are valid."""
    with in_process_node(tmp_path, limits={"bulk": 10}) as node:
        answer = node.http.post("/v1/events", json=[EVENT] * 1_000, headers=bearer(node.source()))
    error = answer.json()["error"]
    assert (answer.status_code, error["message"]) == (422, "1000 events in one request")
    assert error["hint"] == "send 1 to 10 in a request"
    assert len(checked_terms) <= 11


@pytest.mark.parametrize(
    ("caller", "path", "body"),
    [
        ("source", "events", {str(n): 0 for n in range(5_000)}),
        ("source", "events", {"readings": {str(n): "" for n in range(5_000)}}),
        ("nobody", "sources", {"id": "a", **{str(n): 0 for n in range(5_000)}}),
        ("operator", "scene", {"layer": "l", "set": {str(n): 0 for n in range(5_000)}}),
    ],
)
def test_thousands_of_errors_of_an_object_are_not_formatted(
    shared_node: RunningNode,
    tokens: dict[str, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caller: str,
    path: str,
    body: Any,
) -> None:
    """Only their number is reported."""
    formatted = []
    monkeypatch.setattr(validation_errors, "_path", lambda *_: formatted.append(1) or "body")
    answer = shared_node.http.post(f"/v1/{path}", json=body, headers=tokens[caller])
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, "5000 errors")
    assert not formatted


@pytest.mark.parametrize(
    ("caller", "path", "body"),
    [
        ("nobody", "sources", {"id": "a", "k" * 200_000: 0}),
        ("nobody", "sources", {"id": "a", "attributes": {"k" * 200_000: 0}}),
        ("nobody", "sources", {"id": "a", "attributes": {"k": "v" * 200_000}}),
        ("nobody", "sources", {"id": "a" * 200_000}),
        ("source", "events", {**EVENT, "source": "s" * 200_000}),
        ("source", "events", [{**EVENT, "k" * 200_000: 0}]),
        ("subscriber", "letters", {"to": "n" * 200_000, "message": 0}),
        ("subscriber", "subscriptions", {"lacl": "Select " + "(" * 200_000}),
        ("operator", "scene", {"layer": "l", "set": {"a": {"geometry": {"type": "s" * 200_000}}}}),
    ],
)
def test_an_error_does_not_repeat_a_long_text(
    shared_node: RunningNode, tokens: dict[str, dict[str, str]], caller: str, path: str, body: Any
) -> None:
    """Names and values are shortened."""
    answer = shared_node.http.post(f"/v1/{path}", json=body, headers=tokens[caller])
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < 5_000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"id": "a", "attributes": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", 400),
        (b'{"id": "a", "attributes": {"a": ' + b"[" * 100 + b"]" * 100 + b"}}", 422),
        (b'{"id": "a", "x": ' + b"1" * 200_000 + b', "y": 1}', 400),
        (b'{"id": "a", "attributes": {"a": ' + b"1" * 200_000 + b"}}", 400),
        (b'{"id": "a", "attributes": {"a": ' + b"1" * 4_000 + b"}}", 422),
    ],
    ids=["bottomless", "deep", "endless number", "endless attribute", "large attribute"],
)
def test_deep_nesting_and_huge_numbers_are_refused(shared_node: RunningNode, body: bytes, status: int) -> None:
    assert shared_node.http.post("/v1/sources", content=body).status_code == status


def test_a_letter_with_a_huge_number_is_refused(shared_node: RunningNode, tokens: dict[str, dict[str, str]]) -> None:
    """Letters carry integers of 64 bits."""
    shared_node.subscriber("ben")
    letter = {"to": "ben", "message": {"n": 10**30}}
    answer = shared_node.http.post("/v1/letters", json=letter, headers=tokens["subscriber"])
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, "message")


def test_other_requests_are_answered_while_a_large_body_is_parsed(
    shared_node: RunningNode, tokens: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is parsed on another thread."""
    order: list[str] = []
    parsing, answered = threading.Event(), threading.Event()
    check = rows.have_lengths

    def wait_once(*arguments: Any) -> Any:
        if not parsing.is_set():
            parsing.set()
            answered.wait(10)
            order.append("parsed")
        return check(*arguments)

    monkeypatch.setattr(rows, "have_lengths", wait_once)
    body = json.dumps([EVENT] * 5_000).encode()
    with ThreadPoolExecutor(1) as other:
        large = other.submit(shared_node.http.post, "/v1/events", content=body, headers=tokens["source"])
        assert parsing.wait(10)
        assert shared_node.http.get("/v1/offices").status_code == 200
        order.append("answered")
        answered.set()
        assert large.result().status_code == 202
    assert order == ["answered", "parsed"]


def routes_with_bodies(node: RunningNode) -> Iterator[tuple[str, str, bool]]:
    """Method and path of every documented route with a body, and whether anybody may call it.

    Without those of peers: a signature is checked against the body.
    """
    for path, methods in node.http.get("/openapi.json").json()["paths"].items():
        for method, route in methods.items():
            if "requestBody" in route and "PeerSignature" not in str(route.get("security")):
                yield method.upper(), re.sub(r"\{.*?\}", "some", path), {} in route.get("security", [{}])


def test_bodies_of_anonymous_requests_are_not_read(shared_node: RunningNode) -> None:
    """401 first, if a token is required; otherwise 413 if they are large."""
    read = shared_node.service.metrics.request_bytes
    before = [sample.value for sample in next(iter(read.collect())).samples if sample.name.endswith("_count")]
    body = b"[" + b"0," * 1_000_000 + b"0]"
    routes = list(routes_with_bodies(shared_node))
    assert {path for _, path, anonymous in routes if anonymous} == ANONYMOUS
    assert {"/v1/events", "/v1/positions", "/v1/letters", "/v1/subscriptions"} <= {path for _, path, _ in routes}
    for method, path, anonymous in routes:
        answer = shared_node.http.request(method, path, content=body)
        assert (path, answer.status_code) == (path, 413 if anonymous else 401)
    after = [sample.value for sample in next(iter(read.collect())).samples if sample.name.endswith("_count")]
    assert after == before


def test_the_largest_registration_fits_its_limit(shared_node: RunningNode) -> None:
    """As many attributes as allowed, with the longest names and values."""
    attributes = {f"{n:0200}": "v" * 1_000 for n in range(64)}
    assert shared_node.http.post("/v1/sources", json={"id": "large", "attributes": attributes}).status_code == 201
