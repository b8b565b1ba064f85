"""The OpenAPI document as a contract: requests and responses of a node are checked against it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from jsonschema import Draft202012Validator

from roamcast.node.http.app import create_app
from roamcast.node.http.openapi import operations
from roamcast.settings_model import NodeSettings

JSON = "application/json"
_LARGEST = 100_000  # bytes of a body that is checked


class Operation(NamedTuple):
    """An operation of the API."""

    path: str
    method: str
    content: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.content["operationId"])

    @property
    def is_of_peers(self) -> bool:
        return "peers" in self.content["tags"]


@cache
def document() -> dict[str, Any]:
    """The document that every node returns."""
    return create_app(NodeSettings(data=Path("unused"))).openapi()


@cache
def all_operations() -> dict[str, Operation]:
    """The operations by id."""
    found = [Operation(path, method, content) for path, method, content in operations(document())]
    return {operation.id: operation for operation in found}


def check_exchange(response: httpx.Response) -> None:
    """Check a response, and the request if it was accepted. A hook of httpx."""
    request = response.request
    for operation in _operations_at(request.url.path):
        if operation.method == request.method:
            media = response.headers.get("content-type", "").partition(";")[0]
            if media != "text/event-stream":
                check_body(operation, str(response.status_code), media, response.read())
            sent = request.headers.get("content-type", JSON).partition(";")[0]
            if response.status_code < 300 and "requestBody" in operation.content and sent == JSON:
                validate("request", operation, operation.content["requestBody"]["content"][JSON], request.content)
            return


def check_body(operation: Operation, status: str, media: str, body: bytes) -> None:
    """Check the body of a response."""
    documented = operation.content["responses"].get(status)
    assert documented is not None, f"{operation.id}: status {status} is not documented: {body[:500]!r}"
    if "content" not in documented:
        assert not body, f"{operation.id}: a body with status {status}"
        return
    assert media in documented["content"], f"{operation.id}: media type {media} is not documented"
    if media == JSON:
        validate(status, operation, documented["content"][JSON], body)


def validate(what: str, operation: Operation, content: dict[str, Any], body: bytes) -> None:
    """Check a JSON body against the schema of a documented content."""
    if 0 < len(body) <= _LARGEST:
        problem = next(
            _validator(operation.id, what, json.dumps(content["schema"])).iter_errors(json.loads(body)), None
        )
        assert problem is None, f"{operation.id}, {what}: {problem.message} at {problem.json_path}"


@cache
def _operations_by_pattern() -> list[tuple[re.Pattern[str], list[Operation]]]:
    patterns: dict[str, list[Operation]] = {}
    for operation in all_operations().values():
        pattern = "".join(
            "[^/]+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", operation.path)
        )
        patterns.setdefault(pattern, []).append(operation)
    fixed_first = sorted(patterns.items(), key=lambda item: "[^/]+" in item[0])
    return [(re.compile(pattern), found) for pattern, found in fixed_first]


def _operations_at(path: str) -> list[Operation]:
    return next((found for pattern, found in _operations_by_pattern() if pattern.fullmatch(path)), [])


@cache
def _validator(operation: str, what: str, schema: str) -> Draft202012Validator:
    return Draft202012Validator({**json.loads(schema), "components": _closed_components()})


@cache
def _closed_components() -> dict[str, Any]:
    """The components. A response has no fields but those of its schema, though clients should ignore others."""
    components: dict[str, Any] = json.loads(json.dumps(document()["components"]))
    for schema in _objects(components):
        schema.setdefault("additionalProperties", False)
    return components


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("type") == "object" and "properties" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _objects(part)
