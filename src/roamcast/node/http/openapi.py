"""The OpenAPI document of a node: what FastAPI derives from the routes, and what it cannot know.

It cannot know the models of request bodies, which `BodyParser` parses, the errors and the examples. FastAPI removes
null from examples, so that they are added afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Literal

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from roamcast.node.http.examples.story import EXAMPLES
from roamcast.node.http.examples.values import Example
from roamcast.node.http.schemas.errors import ERRORS, ErrorOut

__all__ = ["OPTIONAL_TOKEN", "SIGNED", "component", "describe", "errors", "operations"]

_JSON: Final = "application/json"
_REFERENCE: Final = "#/components/schemas/{model}"
_BODY_ERRORS: Final = (400, 413)  # of operations that have a body
_CALLER_ERRORS: Final = (401, 403, 409)  # that need a token; 409 if the mailbox of the caller is elsewhere
_CHANGE_ERRORS: Final = (503, 507)  # that change something

Document = dict[str, Any]

SIGNED: Final[Document] = {"security": [{"PeerSignature": []}]}
"""What an operation of peers adds to its description."""

OPTIONAL_TOKEN: Final[Document] = {"security": [{}, {"HTTPBearer": []}]}
"""What an operation adds that anybody may call, and for which a token has a meaning."""

_PEER_SIGNATURE: Final = {
    "type": "apiKey",
    "in": "header",
    "name": "roamcast-signature",
    "description": "Only another node can sign a request, with the key that the two share. See docs/security.md.",
}


def component(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> tuple[Document, Document]:
    """A reference to the schema of a model, and the definitions that it needs.

    The definitions may be anywhere in an operation: `describe` moves them to the components of the document.
    """
    references, definitions = models_json_schema([(model, mode)], ref_template=_REFERENCE)
    return references[model, mode], definitions


def errors(*statuses: int) -> dict[int | str, Document]:
    """Errors of an operation, in addition to those that follow from its token, body and method."""
    return {status: {"description": ERRORS[status].summary} for status in statuses}


def describe(app: FastAPI) -> None:
    """Let the app return the complete document. It is built when it is requested first."""
    app.openapi = cache(lambda: _complete(FastAPI.openapi(app)))  # type: ignore[method-assign]


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Path, method and content of all operations."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def _complete(document: Document) -> Document:
    schemas = document["components"]["schemas"]
    document["components"]["securitySchemes"]["PeerSignature"] = _PEER_SIGNATURE
    error, definitions = component(ErrorOut, "serialization")
    schemas.update(definitions["$defs"])
    for _, method, operation in operations(document):
        _split_summary(operation)
        for content in operation.get("requestBody", {}).get("content", {}).values():
            schemas.update(content["schema"].pop("$defs", {}))
        _add_errors(operation, method, error)
        for name, example in EXAMPLES.get(operation["operationId"], {}).items():
            _add_example(operation, name, example)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _split_summary(operation: Document) -> None:
    """The first sentence of the docstring is the summary."""
    summary, *rest = re.split(r"\.(?:\s+|$)", operation.get("description", ""), maxsplit=1)
    operation["summary"] = " ".join(summary.replace("`", "").split())
    operation["description"] = "".join(rest)


def _add_errors(operation: Document, method: str, error: Document) -> None:
    responses = operation["responses"]
    statuses = {
        *(_BODY_ERRORS if "requestBody" in operation else ()),
        *(_CALLER_ERRORS if "security" in operation else ()),
        *(_CHANGE_ERRORS if method != "GET" else ()),
    }
    for status in statuses:
        responses.setdefault(str(status), {"description": ERRORS[status].summary})
    for status, known in ERRORS.items():
        if str(status) in responses and "content" not in responses[str(status)]:
            examples = {"error": {"value": known.example}}
            responses[str(status)]["content"] = {_JSON: {"schema": error, "examples": examples}}
    operation["responses"] = dict(sorted(responses.items()))


def _add_example(operation: Document, name: str, example: Example) -> None:
    described = {"summary": example.summary}
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example.parameters:
            parameter.setdefault("examples", {})[name] = {
                **described,
                "value": example.parameters[parameter["name"]],
            }
    if example.body is not None:
        content = operation["requestBody"]["content"][_JSON]
        content.setdefault("examples", {})[name] = {**described, "value": example.body}
    for content in operation["responses"][str(example.status)].get("content", {}).values():
        content.setdefault("examples", {})[name] = {**described, "value": example.response}
