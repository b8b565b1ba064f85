"""Errors in responses: a status and {"error": {"code", "message", "where", "hint"}}. `ErrorOut` is their schema."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

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
from roamcast.node.validation_errors import MalformedError, input_error_of

__all__ = ["BodyTooLargeError", "error_json", "error_response", "handle_errors"]

log = logging.getLogger(__name__)

_LONGEST: Final = 1_000  # characters of a message, location or hint, which may quote the request


class BodyTooLargeError(CapacityError):
    """The body is larger than the limit."""


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


def handle_errors(app: FastAPI) -> None:
    """Return every error in the same form, without tracebacks."""
    app.add_exception_handler(RoamcastError, _roamcast_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)


def error_json(error: RoamcastError) -> dict[str, Any]:
    """An error as JSON."""
    content = {
        "code": error.code,
        "message": _shorten(error.message),
        "where": _shorten(error.where),
        "hint": _shorten(error.hint),
    }
    if isinstance(error, LaclError):
        content["where"] = error.where or "lacl"
        return {**content, "line": error.line, "column": error.column, "excerpt": error.excerpt}
    if isinstance(error, ElsewhereError):
        return {**content, "office": error.office, "epoch": error.epoch}
    return content


def error_response(error: RoamcastError) -> Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    if isinstance(error, SessionError):
        headers = error.headers
    return _response(status, error_json(error), headers)


async def _roamcast_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RoamcastError)  # noqa: S101  (registered for it)
    response = error_response(error)
    if response.status_code >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error)
    return response


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  (registered for it)
    return await _roamcast_error(request, input_error_of(error, ""))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for it)
    code = "not_found" if error.status_code == 404 else "bad_input"
    hint = "see /docs for all paths"
    content = {"code": code, "message": str(error.detail), "where": _shorten(request.url.path), "hint": hint}
    return _response(error.status_code, content, error.headers)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    # The server logs the traceback.
    hint = "see the log of the node"
    return _response(500, {"code": "internal", "message": "internal error", "where": None, "hint": hint})


def _shorten(text: str | None) -> str | None:
    return f"{text[:_LONGEST]}…" if text is not None and len(text) > _LONGEST else text


def _response(status: int, content: Mapping[str, Any], headers: Any = None) -> Response:
    return Response(orjson.dumps({"error": content}), status, headers, "application/json")
