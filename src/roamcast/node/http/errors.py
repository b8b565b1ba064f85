"""Errors as the API tells them: a status and {"error": {"code", "message", "where", "hint"}}."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from roamcast.errors import (
    AuthenticationError,
    CapacityError,
    ConflictError,
    ElsewhereError,
    InputError,
    NotFoundError,
    PermissionDeniedError,
    RoamcastError,
    StorageError,
    UnavailableError,
)
from roamcast.lacl import LaclError
from roamcast.node.peers.signed_http import SessionError
from roamcast.node.schemas import MalformedError, input_error_of

__all__ = ["ERROR_RESPONSES", "BodyTooLargeError", "handle_errors", "told"]

log = logging.getLogger(__name__)


class BodyTooLargeError(CapacityError):
    """The body is over the limit."""


_STATUS: tuple[tuple[type[RoamcastError], int], ...] = (
    (MalformedError, 400),
    (InputError, 422),
    (AuthenticationError, 401),
    (PermissionDeniedError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (BodyTooLargeError, 413),
    (CapacityError, 429),
    (UnavailableError, 503),
    (StorageError, 507),
)

_SCHEMA = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "where": {"type": ["string", "null"]},
                "hint": {"type": ["string", "null"]},
                "line": {"type": ["integer", "null"], "description": "In LACL, counted from 1, as is the column."},
                "column": {"type": ["integer", "null"]},
                "office": {
                    "type": ["string", "null"],
                    "description": "Where a subscriber is that is `elsewhere`.",
                },
                "epoch": {"type": "integer", "description": "Its last arrival."},
                "excerpt": {"type": "string", "description": "The line, and carets below the place."},
            },
        }
    },
}

ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "What was asked is refused; nothing was applied.",
        "content": {"application/json": {"schema": _SCHEMA}},
    },
    "5XX": {
        "description": "The node could not do it, such as 507 for a full disk; nothing was acknowledged.",
        "content": {"application/json": {"schema": _SCHEMA}},
    },
}


def handle_errors(app: FastAPI) -> None:
    """Let every error leave in the same shape, and none with a traceback."""
    app.add_exception_handler(RoamcastError, _roamcast_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)


def told(error: RoamcastError) -> dict[str, Any]:
    """What a caller is told of an error."""
    said = {"code": error.code, "message": error.message, "where": error.where, "hint": error.hint}
    if isinstance(error, LaclError):
        said["where"] = error.where or "lacl"
        return {**said, "line": error.line, "column": error.column, "excerpt": error.excerpt}
    if isinstance(error, ElsewhereError):
        return {**said, "office": error.office, "epoch": error.epoch}
    return said


async def _roamcast_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RoamcastError)  # noqa: S101  (registered for it)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error)
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    if isinstance(error, SessionError):
        headers = error.headers
    return _answer(status, told(error), headers)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  (registered for it)
    return await _roamcast_error(request, input_error_of(error, ""))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for it)
    code = "not_found" if error.status_code == 404 else "bad_input"
    hint = "see /docs for all addresses"
    said = {"code": code, "message": str(error.detail), "where": request.url.path, "hint": hint}
    return _answer(error.status_code, said, error.headers)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    # The server logs it, with its traceback.
    hint = "the reason is in the node's log"
    return _answer(500, {"code": "internal", "message": "the node failed at this", "where": None, "hint": hint})


def _answer(status: int, said: Mapping[str, Any], headers: Any = None) -> Response:
    return Response(orjson.dumps({"error": said}), status, headers, "application/json")
