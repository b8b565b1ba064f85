"""The OpenAPI document: complete, consistent, and true at a real node.

That all other responses are as documented is checked in every test that calls a node: see tests/support/contract.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from contract import JSON, Operation, all_operations, check_body, document, validate
from jsonschema import Draft202012Validator
from nodes import RunningNode, in_process_node, leave, until

from roamcast.client.streams import SseEvent, SseReader
from roamcast.node.http.bulk_rows import NDJSON
from roamcast.node.http.examples.story import EXAMPLES
from roamcast.node.http.examples.values import ANNA, BEN, OPERATOR, PIPELINE, PROOF, Example
from roamcast.node.http.schemas.errors import ERRORS
from roamcast.node.peers.peer_file import Peer
from roamcast.security.move_proofs import MoveProofChain

OPERATIONS = [pytest.param(operation, id=id) for id, operation in all_operations().items()]
PUBLIC = [pytest.param(operation, id=id) for id, operation in all_operations().items() if not operation.is_of_peers]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_are_described(operation: Operation) -> None:
    """Each has a readable id, a summary, a schema for every response with a body, and its errors."""
    content = operation.content
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", operation.id)
    assert content["summary"]
    assert len(content["summary"]) <= 120
    schemas = {
        status: [body.get("schema") for body in response["content"].values()]
        for status, response in content["responses"].items()
        if status != "204"
    }
    assert all(schemas.values())
    assert all(schema for found in schemas.values() for schema in found)
    assert [status for status in schemas if status.startswith("4")]
    assert {"schema": {"$ref": "#/components/schemas/ErrorOut"}}.items() <= content["responses"]["422"]["content"][
        JSON
    ].items()


@pytest.mark.parametrize("operation", PUBLIC)
def test_operations_have_examples(operation: Operation) -> None:
    """Of the request, if it has a body or required parameters, and of every success but 204."""
    content = operation.content
    if "requestBody" in content:
        assert content["requestBody"]["content"][JSON]["examples"]
        if (lines := content["requestBody"]["content"].get(NDJSON)) is not None:
            assert lines["example"]
    for parameter in content.get("parameters", ()):
        assert parameter.get("examples") or not parameter["required"], parameter["name"]
    examples = [
        body.get("examples")
        for status, response in content["responses"].items()
        if status.startswith("2")
        for body in response.get("content", {}).values()
    ]
    assert any(examples) or "204" in content["responses"]


def test_signed_operations_say_so() -> None:
    of_peers = [operation for operation in all_operations().values() if operation.is_of_peers]
    assert len(of_peers) == 10
    for operation in of_peers:
        signed = operation.content.get("security") == [{"PeerSignature": []}]
        assert signed == ("Signed" in operation.content["description"]) == (operation.id != "join")


def test_references_are_components() -> None:
    """So that generators produce named types. All of them are used."""
    text = json.dumps(document())
    references = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text))
    assert references == set(document()["components"]["schemas"])
    assert text.count('"$ref"') == len(re.findall(r'"\$ref": "#/components/schemas/', text))
    assert "$defs" not in text


def test_examples_match_their_schemas() -> None:
    """Requests, responses, and errors of all operations."""
    checked = 0
    for operation in all_operations().values():
        contents = {status: response.get("content", {}) for status, response in operation.content["responses"].items()}
        contents["request"] = operation.content.get("requestBody", {}).get("content", {})
        for what, bodies in contents.items():
            for example in bodies.get(JSON, {}).get("examples", {}).values():
                validate(what, operation, bodies[JSON], json.dumps(example["value"]).encode())
                checked += 1
    assert checked > 300


def test_every_example_belongs_to_an_operation() -> None:
    assert set(EXAMPLES) == {operation.id for operation in all_operations().values() if not operation.is_of_peers}


def test_removal_says_what_happens_to_pending_letters() -> None:
    assert "still become letters" in all_operations()["remove_subscription"].content["description"]


def test_docs_are_shown_without_a_network(shared_node: RunningNode) -> None:
    page = shared_node.http.get("/docs")
    assert page.status_code == 200
    assert "https://" not in page.text
    assert shared_node.http.get("/openapi.json").json() == document()


class Story:
    """Plays the examples at a node. Values of the examples are replaced by those that the node has returned."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self._real: dict[str, str] = {}

    def learn(self, example: str, real: str) -> None:
        """Remember which value of the node stands for which text of the examples."""
        self._real[example] = real

    def real(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.real(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.real(part) for part in value]
        return self._real.get(value, value) if isinstance(value, str) else value

    def request(self, operation: Operation, example: Example) -> httpx.Request:
        parameters = dict(self.real(dict(example.parameters)))
        path = re.sub(r"\{(\w+)\}", lambda match: str(parameters.pop(match[1])), operation.path)
        headers = {} if example.caller is None else {"authorization": f"Bearer {self.real(example.caller)}"}
        body = None if example.body is None else self.real(example.body)
        return self._node.http.build_request(
            operation.method, path, params=parameters or None, headers=headers, json=body
        )

    def prepare(self, id: str) -> None:
        """What others do before the examples of an operation."""
        if id == "send_letters":
            leave(self._node.data, 1, ("anna", 1, "mic-1:1"), pipeline=PIPELINE)
            until(self._node.client(self.real(ANNA)).pull, "the letter")
        if id == "arrive":
            self.learn(PROOF, str(MoveProofChain(self.real(BEN)).proof("local.node.ben", 2)))

    def play(self, operation: Operation, example: Example) -> None:
        response = self._node.http.send(self.request(operation, example), stream=True)
        try:
            media = response.headers.get("content-type", "").partition(";")[0]
            if media == "text/event-stream":
                check_stream(example, response)
                return
            body = response.read()
        finally:
            response.close()
        assert response.status_code == example.status, (operation.id, example.summary, body)
        check_body(operation, str(response.status_code), media, body)
        if body and media == JSON:
            for name in {"token", "ticket"} & response.json().keys():
                self.learn(example.response[name], response.json()[name])


def test_the_examples_work_at_a_node(tmp_path: Path) -> None:
    """One after another, each is answered as documented."""
    with in_process_node(tmp_path, scene=True, at=(8.5, 53.5)) as node:
        node.service.office.peers.put(Peer("south", "http://south.example:8080", "00" * 32))
        story = Story(node)
        story.learn(OPERATOR, str(node.operator().token))
        for id, examples in EXAMPLES.items():
            story.prepare(id)
            for example in examples.values():
                story.play(all_operations()[id], example)


def check_stream(example: Example, response: httpx.Response) -> None:
    """The first event has the name of the example's first, and data of the same form."""
    (expected, *_), reader = SseReader().feed(example.response.encode()), SseReader()
    received: SseEvent = next(event for chunk in response.iter_bytes() for event in reader.feed(chunk))
    assert (received.name, received.id is None) == (expected.name, expected.id is None)
    model = {"letter": "MessageLetterOut", "demand": "DemandOut", "snapshot": "SceneOut"}[expected.name]
    schema = {"$ref": f"#/components/schemas/{model}", "components": document()["components"]}
    for data in (received.data, expected.data):
        Draft202012Validator(schema).validate(json.loads(data))


def test_examples_of_errors_are_what_a_node_says(shared_node: RunningNode) -> None:
    """Those that are easy to cause."""
    source = {"authorization": f"Bearer {shared_node.source('mic-1').token}"}
    anna = {"authorization": f"Bearer {shared_node.subscriber('anna').token}"}
    http, stranger = shared_node.http, {"authorization": "Bearer wrong"}
    for response in (
        http.post("/v1/subscriptions", content=b"{", headers=anna),
        http.get("/v1/me", headers=stranger),
        http.get("/v1/mailbox", headers=source),
        http.get("/v1/subscriptions/fire", headers=anna),
        http.post("/v1/subscribers", json={"id": "anna"}),
        http.post("/v1/events", content=b" " * 9_000_000, headers=source),
        http.post("/v1/subscriptions", json={"term": ["fire"]}, headers=anna),
    ):
        assert response.json() == ERRORS[response.status_code].example


@pytest.mark.parametrize("path", ["/v1/mailbox?limt=1", "/v1/subscriptions?afer=q", "/v1/offices?x=1", "/healthz?a"])
def test_unknown_parameters_are_refused(shared_node: RunningNode, path: str) -> None:
    """Whatever the token."""
    response = shared_node.http.get(path)
    error = response.json()["error"]
    name = re.split(r"[?=]", path)[1]
    assert (response.status_code, error["where"], error["message"]) == (422, name, f"unknown parameter '{name}'")
    assert error["hint"].startswith(("known: ", "did you mean "))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_refuses_unknown_parameters(shared_node: RunningNode, operation: Operation) -> None:
    path = re.sub(r"\{\w+\}", "1", operation.path)
    response = shared_node.http.request(operation.method, path, params={"no_such_parameter": "1"})
    assert response.status_code == 422
    assert response.json()["error"]["where"] == "no_such_parameter"


def test_a_misspelt_parameter_creates_nothing(tmp_path: Path) -> None:
    with in_process_node(tmp_path) as node:
        assert node.http.post("/v1/sources?kind=camera", json={"id": "mic"}).status_code == 422
        assert node.http.post("/v1/sources", json={"id": "mic"}).status_code == 201


FIELDS = {
    "sources": (
        {"id": "x", "attribute": {}},
        "attribute",
        "did you mean 'attributes'? known: attributes, id, token, x, y",
    ),
    "positions": ([{"x": 1, "y": 1}, {"x": 1, "y": 1, "z": 1}], "positions[1].z", "known: entity, time, x, y"),
    "mailbox/ack": ({"through": 0, "ack": 1}, "ack", "known: through"),
    "scene": (
        {"layer": "l", "set": {"a": {"geometry": {"type": "Point", "coordinates": [1, 2], "crs": 1}}}},
        "set.a.geometry.Point.crs",
        "known: coordinates, type",
    ),
    "subscriptions": ({"region": {}, "terms": ["a"]}, "region", 'send "box": [min_x, min_y, max_x, max_y]'),
}


@pytest.mark.parametrize(("path", "body", "where", "hint"), [(path, *case) for path, case in FIELDS.items()])
def test_unknown_fields_are_answered_with_the_known_ones(
    tmp_path: Path, path: str, body: Any, where: str, hint: str
) -> None:
    """At every depth; a former name is answered with what replaces it."""
    with in_process_node(tmp_path, scene=True) as node:
        client = {"scene": node.operator, "sources": node.gateway}.get(path, node.subscriber)()
        headers = {"authorization": f"Bearer {client.token}"}
        response = node.http.post(f"/v1/{path}", json=body, headers=headers)
    error = response.json()["error"]
    field = where.rpartition(".")[2]
    assert (response.status_code, error["message"]) == (422, f"unknown field {field!r}")
    assert (error["where"], error["hint"]) == (where, hint)
