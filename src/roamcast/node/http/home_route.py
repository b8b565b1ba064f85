"""Requests of visitors about what they have at home: the visited node passes them on, the home serves them."""

from __future__ import annotations

import logging
from typing import Any, Final

import httpx
import orjson
from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from roamcast.deliver.addressing import home_of
from roamcast.errors import InputError, RoamcastError, UnavailableError
from roamcast.node.callers import Caller
from roamcast.node.http.api_route import ApiRoute, Handler
from roamcast.node.http.arrow_bodies import TABLE_TYPES
from roamcast.node.http.bulk_rows import NDJSON
from roamcast.node.http.errors import error_response
from roamcast.node.http.request_parsing import media_type, read_bytes
from roamcast.node.peers.schemas import VisitorRequestIn, VisitorResponseIn
from roamcast.node.service import Node
from roamcast.node.validation_errors import input_error_of
from roamcast.store.registry.visitors import Visitor

__all__ = ["HomeRoute", "serve_visitor"]

log = logging.getLogger(__name__)

_PATH: Final = "/v1/office/visitor-requests"
_VISITING: Final = "roamcast.visiting"
_HOME_WAIT: Final = 8.0  # seconds; less than clients wait
_BEARER: Final = "bearer "


class HomeRoute(ApiRoute):
    """A route that visitors can use, too: their home answers. The other routes refuse their tokens."""

    def get_route_handler(self) -> Handler:
        serve = super().get_route_handler()

        async def serve_or_pass_on(request: Request) -> Response:
            node: Node = request.app.state.node
            if (visiting := request.scope.get(_VISITING)) is not None:
                request.state.visiting = visiting
            elif (visitor := node.auth.visitor(_token(request))) is not None:
                return await _pass_on(node, visitor, request)
            return await serve(request)

        return serve_or_pass_on


async def serve_visitor(node: Node, app: FastAPI, peer: str, nonce: str, request: VisitorRequestIn) -> dict[str, Any]:
    """At the home: the response to a request that a subscriber has sent to the node of `peer`, where it visits.

    `app` has only the routes that visitors can use. The response is kept in memory until it is complete.
    """
    admission = node.office.admission
    try:
        caller = Caller(await admission.visiting_id(peer, request.name, request.epoch), "subscriber")
        if request.method != "GET":
            admission.check_order(request.name, nonce)
    except RoamcastError as error:
        refused = error_response(error)
        return {"status": refused.status_code, "body": bytes(refused.body).decode()}
    transport = httpx.ASGITransport(_as_caller(app, caller), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://home") as http:
        url = f"{request.path}?{request.query}" if request.query else request.path
        headers = {"content-type": request.content_type}
        response = await http.request(request.method, url, content=request.body.encode(), headers=headers)
    return {"status": response.status_code, "body": response.text}


def _as_caller(app: FastAPI, caller: Caller) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app({**scope, _VISITING: caller}, receive, send)
        except Exception:  # the response is 500; no server is here that would log it
            log.exception("%s %s for visitor %s", scope["method"], scope["path"], caller.id)

    return call


async def _pass_on(node: Node, visitor: Visitor, request: Request) -> Response:
    """The home's response. Raises UnavailableError if there is none, InputError for a body that is no text."""
    home = home_of(visitor.name)
    peer = node.office.peers.find(home)
    if peer is None:
        raise UnavailableError(f"{home} is no peer of this node any more", where=visitor.name, hint="arrive elsewhere")
    body = await _read_text(node, request)
    try:
        passed = VisitorRequestIn(
            name=visitor.name,
            epoch=visitor.epoch,
            method=request.method,  # type: ignore[arg-type]  # validated here
            path=request.scope["raw_path"].decode("ascii"),
            query=request.url.query,
            content_type=NDJSON if media_type(request) == NDJSON else "application/json",
            body=body,
        )
    except ValidationError as error:
        raise input_error_of(error, "") from None
    try:
        content = await node.office.signed_http.post(peer, _PATH, orjson.dumps(passed.model_dump()), seconds=_HOME_WAIT)
        answer = VisitorResponseIn.model_validate_json(content)
        return Response(answer.body, answer.status, media_type="application/json")
    except (UnavailableError, ValidationError) as error:
        raise UnavailableError(
            f"{home}, the home of {visitor.name}, has not answered: {getattr(error, 'message', 'invalid response')}",
            where=home,
            hint="it may or may not have done this; repeat it later. Letters can be read and sent meanwhile",
        ) from error


async def _read_text(node: Node, request: Request) -> str:
    if (type_ := media_type(request)) in TABLE_TYPES:
        message = f"{type_} is not passed on to the home of a visitor"
        raise InputError(message, where="Content-Type", hint="send JSON or NDJSON")
    body = await read_bytes(request, node, node.limits.body // 2)  # quoting can double it
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: {error.reason}", where="body", hint="send JSON") from None


def _token(request: Request) -> str | None:
    credentials = request.headers.get("authorization", "")
    return credentials[len(_BEARER) :].strip() if credentials.lower().startswith(_BEARER) else None
