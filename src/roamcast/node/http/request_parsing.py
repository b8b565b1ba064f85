"""Parse request bodies: size limit, JSON, one value or a list."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, TypeAdapter, ValidationError

from roamcast.errors import InputError
from roamcast.node.http.errors import BodyTooLargeError
from roamcast.node.schemas import input_error_of
from roamcast.node.service import Node
from roamcast.settings import NodeLimits

__all__ = ["BodyParser", "read_bytes"]

T = TypeVar("T", bound=BaseModel)

_LIMITS = NodeLimits()


class BodyParser(Generic[T]):
    """Parses one kind of body, and describes it for /docs."""

    def __init__(self, model: type[T], *, bulk: str | None = None) -> None:
        """`bulk` is the name, in errors, of a list that is accepted in place of one value."""
        self._one: TypeAdapter[T] = TypeAdapter(model)
        self._many: TypeAdapter[list[T]] = TypeAdapter(list[model])  # type: ignore[valid-type]  # a class at run time
        self._bulk = bulk
        self.openapi = {"requestBody": {"required": True, "content": {"application/json": {"schema": self._schema()}}}}

    async def read(self, request: Request, node: Node) -> T:
        """Read the body and parse one value."""
        return self._one_of(await read_bytes(request, node), node.limits)

    def parse(self, body: bytes) -> T:
        """Parse one value."""
        return self._one_of(body, _LIMITS)

    async def read_bulk(self, request: Request, node: Node) -> tuple[list[T], bool]:
        """Read the body and parse one value or a list; the values, and whether it was a list."""
        body = await read_bytes(request, node)
        limits = node.limits
        if not body.lstrip().startswith(b"["):
            return [self._one_of(body, limits)], False
        name = self._bulk or ""
        try:
            many = self._many.validate_json(body, context=limits)
        except ValidationError as error:
            raise input_error_of(error, name) from None
        if not 1 <= len(many) <= limits.bulk:
            raise InputError(
                f"{len(many)} {name} in one request", where=name, hint=f"send 1 to {limits.bulk} in a request"
            )
        return many, True

    def _one_of(self, body: bytes, limits: NodeLimits) -> T:
        try:
            return self._one.validate_json(body, context=limits)
        except ValidationError as error:
            raise input_error_of(error, "") from None

    def _schema(self) -> dict[str, Any]:
        whole = self._one.json_schema()
        one = _inlined(whole, whole.pop("$defs", {}))
        return {"anyOf": [one, {"type": "array", "items": one}]} if self._bulk else one


async def read_bytes(request: Request, node: Node) -> bytes:
    """The whole body. Stops reading as soon as it is too large."""
    most = node.limits.body
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


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its references resolved; /docs cannot follow them."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(part, definitions) for name, part in schema.items() if name != "discriminator"}
