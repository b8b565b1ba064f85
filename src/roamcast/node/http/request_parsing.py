"""Parse request bodies: size limit, JSON, one value or a list.

Parsing stops at the first invalid element of a list, and large bodies are parsed off the event loop, so that no request
holds up the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, FailFast, Field, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from roamcast.node.http.errors import BodyTooLargeError
from roamcast.node.http.openapi import component
from roamcast.node.service import Node
from roamcast.node.validation_errors import input_error_of, list_length_error
from roamcast.settings_model import NodeLimits

__all__ = ["BodyParser", "media_type", "parse_off_loop", "read_bytes"]

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

_LIMITS = NodeLimits()
_LARGE: Final = 64 * 1024  # bytes of a body that is parsed off the loop


class BodyParser(Generic[T]):
    """Parses one kind of body, and describes it for the OpenAPI document."""

    def __init__(self, model: type[T], *, bulk: str | None = None, anonymous: bool = False) -> None:
        """`bulk` is the name, in errors, of a list that is accepted in place of one value.

        `anonymous`: anybody may send it, so it must be small.
        """
        self._model = model
        self._one: TypeAdapter[T] = TypeAdapter(model)
        self._bulk = bulk
        self._anonymous = anonymous
        self.openapi: dict[str, Any] = {
            "requestBody": {"required": True, "content": {"application/json": {"schema": self._schema()}}}
        }

    def openapi_with(self, lines: str, tables: Mapping[str, str], example: str) -> dict[str, Any]:
        """As `openapi`, if the body may also be lines, each with one value; or a table, with a description.

        `example` is a body of lines.
        """
        binary = {
            kind: {"schema": {"type": "string", "format": "binary", "description": tables[kind]}} for kind in tables
        }
        body = self.openapi["requestBody"]
        content = {
            **body["content"],
            lines: {"schema": {"type": "string", "description": "One JSON value in each line."}, "example": example},
            **binary,
        }
        return {"requestBody": {**body, "content": content}}

    async def read(self, request: Request, node: Node) -> T:
        """Read the body and parse one value."""
        body = await self._read_bytes(request, node, self._anonymous)
        return await parse_off_loop(body, lambda: self.parse(body, node.limits))

    def parse(self, body: bytes, limits: NodeLimits = _LIMITS) -> T:
        """Parse one value."""
        try:
            return self._one.validate_json(body, context=limits)
        except ValidationError as error:
            raise input_error_of(error, "", model=self._model) from None

    async def read_bulk(
        self, request: Request, node: Node, most: int | None = None, *, anonymous: bool = False
    ) -> tuple[list[T], bool]:
        """Read the body and parse one value or a list; the values, and whether it was a list.

        A list has at most `most` elements; by default, as many as the node's limit for bulk requests allows.
        `anonymous`: this request may be from anybody.
        """
        body = await self._read_bytes(request, node, anonymous or self._anonymous)
        if not body.lstrip().startswith(b"["):
            return [await parse_off_loop(body, lambda: self.parse(body, node.limits))], False
        return await parse_off_loop(body, lambda: self.parse_list(body, most or node.limits.bulk, node.limits)), True

    def parse_list(self, body: bytes, most: int, limits: NodeLimits = _LIMITS) -> list[T]:
        """Parse a list of 1 to `most` values."""
        name = self._bulk or ""
        try:
            values = _list_adapter(self._model, most).validate_json(body, context=limits)
        except ValidationError as error:
            raise input_error_of(error, name, most, self._model) from None
        if not values:
            raise list_length_error(0, name, most)
        return values

    async def _read_bytes(self, request: Request, node: Node, anonymous: bool) -> bytes:
        limits = node.limits
        return await read_bytes(request, node, min(limits.body, limits.anonymous_body) if anonymous else None)

    def _schema(self) -> dict[str, Any]:
        one, definitions = component(self._model, "validation")
        schema = {"anyOf": [one, {"type": "array", "items": one}]} if self._bulk else one
        return {**schema, **definitions}


@cache
def _list_adapter(model: type[T], most: int) -> TypeAdapter[list[T]]:
    """Stops at the first invalid element, and after `most`."""
    checked: Any = Annotated[list[model], FailFast(), Field(max_length=most)]  # type: ignore[valid-type]  # a class at run time
    return TypeAdapter(checked)


async def parse_off_loop(body: bytes, parse: Callable[[], R]) -> R:
    """Parse a body, on another thread if it is large: other requests are answered meanwhile."""
    return await run_in_threadpool(parse) if len(body) > _LARGE else parse()


def media_type(request: Request) -> str:
    """That of the body, without parameters; empty if it is not said."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_bytes(request: Request, node: Node, most: int | None = None) -> bytes:
    """The whole body, of at most `most` bytes. Stops reading as soon as it is too large."""
    most = most or node.limits.body
    too_large = BodyTooLargeError(f"the body is larger than {most} bytes", where="body", hint="split the request")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise too_large
    node.metrics.request_bytes.observe(len(body))
    return bytes(body)
