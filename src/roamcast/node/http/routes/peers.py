"""Requests of other nodes. All but `join` are signed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.errors import ConflictError
from roamcast.journal.records import EVENT, Record
from roamcast.journal.wants import check_want
from roamcast.node.control.wants import WantsRequest
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import TheNode, check_rate
from roamcast.node.http.home_route import serve_visitor
from roamcast.node.http.openapi import SIGNED, errors
from roamcast.node.http.request_parsing import BodyParser, parse_off_loop, read_bytes
from roamcast.node.http.schemas.peers import (
    EmptyOut,
    JoinedOut,
    PassedOut,
    PublishProofOut,
    VisitorResponseOut,
    VouchOut,
    WantsOut,
)
from roamcast.node.peers.discovery_codec import decode_request, encode
from roamcast.node.peers.forwarding import encode_events
from roamcast.node.peers.message_codec import decode
from roamcast.node.peers.peer_file import Peer
from roamcast.node.peers.schemas import (
    ForwardedEventsIn,
    IntroductionIn,
    JoinIn,
    PassedEventsIn,
    PublishProofIn,
    VisitorRequestIn,
    VouchIn,
    WantsIn,
)
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end

router = APIRouter(prefix="/office", tags=["peers"], route_class=ApiRoute)

_Endpoint = Callable[..., Awaitable[Response]]

_JOIN = BodyParser(JoinIn, anonymous=True)
_INTRODUCTION = BodyParser(IntroductionIn)
_VOUCH = BodyParser(VouchIn)
_PUBLISH_PROOF = BodyParser(PublishProofIn)
_VISITOR_REQUEST = BodyParser(VisitorRequestIn)
_WANTS = BodyParser(WantsIn)
_FORWARDED = BodyParser(ForwardedEventsIn)
_PASSED = BodyParser(PassedEventsIn)
_POLL = 0.02  # seconds

_PRIVATE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "description": "Between nodes of one version."}}},
    }
}


def _signed_operation(path: str, body: dict[str, Any], model: Any) -> Callable[[_Endpoint], _Endpoint]:
    """A decorator for the operation at `path`, with the OpenAPI of its body and the model of its response."""
    return router.post(
        path,
        response_class=Response,
        openapi_extra={**body, **SIGNED},
        responses={200: {"model": model, "description": "Signed, too."}, **errors(404, 429)},
    )


@router.post("/join", openapi_extra=_JOIN.openapi, responses=errors(403, 429))
async def join(request: Request, node: TheNode) -> JoinedOut:
    """Join with an invitation. Not signed: the two nodes have no key yet, and prove that they know the invitation."""
    check_rate(request, node)
    return JoinedOut(**await node.office.membership.accept(await _JOIN.read(request, node)))


@_signed_operation("/introductions", _INTRODUCTION.openapi, EmptyOut)
async def introduce(request: Request, node: TheNode) -> Response:
    """Introduce another office to this one. Signed."""
    peer, nonce, body = await _signed(request, node)
    added = await node.office.membership.accept_introduction(peer, _INTRODUCTION.parse(body))
    if added is not None:
        node.office.sender.reconnect(added.domain)
    return _json(node, peer, nonce, {})


@_signed_operation("/vouch", _VOUCH.openapi, VouchOut)
async def vouch(request: Request, node: TheNode) -> Response:
    """Verify a move proof. Signed."""
    peer, nonce, body = await _signed(request, node)
    question = _VOUCH.parse(body)
    judge = node.office.admission.judge_move
    verdict = await run_in_threadpool(judge, question.name, question.epoch, question.move_proof)
    return _json(node, peer, nonce, {"verdict": verdict})


@_signed_operation("/publish-proofs", _PUBLISH_PROOF.openapi, PublishProofOut)
async def verify_publish_proof(request: Request, node: TheNode) -> Response:
    """Verify a publish proof. Signed."""
    peer, nonce, body = await _signed(request, node)
    question = _PUBLISH_PROOF.parse(body)
    verdict = node.office.admission.judge_publish(peer.domain, question.id, question.proof)
    return _json(node, peer, nonce, verdict._asdict())


@_signed_operation("/visitor-requests", _VISITOR_REQUEST.openapi, VisitorResponseOut)
async def serve_visitor_request(request: Request, node: TheNode) -> Response:
    """Serve a request that a subscriber of this node has sent to the node that it visits. Signed."""
    peer, nonce, body = await _signed(request, node)
    asked = await parse_off_loop(body, lambda: _VISITOR_REQUEST.parse(body))
    visitors_app = request.app.state.for_visitors
    return _json(node, peer, nonce, await serve_visitor(node, visitors_app, peer.domain, nonce, asked))


@_signed_operation("/messages", _PRIVATE_BODY, EmptyOut)
async def deliver_messages(request: Request, node: TheNode) -> Response:
    """Deliver messages between post offices. Signed."""
    peer, nonce, body = await _signed(request, node)
    received = await parse_off_loop(body, lambda: decode(body))
    admitted = [await node.office.admission.admit(peer.domain, message) for message in received]
    node.office.actor.tell_all([message for message in admitted if message is not None])
    if not received:  # a greeting: the peer has started, or reaches us again
        node.office.sender.reconnect(peer.domain)
        node.office.actor.hurry()
    return _json(node, peer, nonce, {})


@_signed_operation("/sources", _PRIVATE_BODY, dict[str, Any])
async def discover_sources(request: Request, node: TheNode) -> Response:
    """Discover sources of this node. Signed."""
    peer, nonce, body = await _signed(request, node)
    received = await run_in_threadpool(decode_request, body, node.space)
    node.office.admission.check_sender(peer.domain, received.request.node)
    return _signed_response(node, peer, nonce, encode(await node.discovery.respond(peer.domain, received)))


@_signed_operation("/wants", _WANTS.openapi, WantsOut)
async def set_wants(request: Request, node: TheNode) -> Response:
    """Set what a node of another data folder wants of the sources here. The response confirms what is stored.

    Signed. The response also has the ends of the journals of this data folder, and up to where the events in them are
    journalled there.
    """
    peer, nonce, body = await _signed(request, node)
    received, after = await run_in_threadpool(_read_wants, body)
    version = await await_to_the_end(node.peer_requests.apply_wants(peer.domain, received))
    stalled = await run_in_threadpool(node.health.no_pipeline)
    drained: Mapping[str, int] = {}
    if after is not None and await await_to_the_end(node.peer_requests.is_linked(peer.domain, received.link)):
        drained = await run_in_threadpool(node.forwarding.drained_through, received.link, after)
    response = {
        "version": version,
        "time": node.clock.now(),
        "no_pipeline": stalled,
        "journal_ends": await run_in_threadpool(node.journal_ends),
        "drained": drained,
    }
    return _json(node, peer, nonce, response)


@_signed_operation("/forwarded-events", _FORWARDED.openapi, Any)
async def take_forwarded_events(request: Request, node: TheNode) -> Response:
    """Take the next events of a link. Waits for the first one. Signed. The response is empty, or JSON lines."""
    peer, nonce, body = await _signed(request, node)
    question = _FORWARDED.parse(body)
    if not await await_to_the_end(node.peer_requests.is_linked(peer.domain, question.link)):
        raise ConflictError("nothing is wanted for this link", where="link", hint="send what is wanted first")
    end = time.monotonic() + question.wait
    queues, events = node.forwarding, None
    while True:
        if queues.may_have_events(question.link):
            events = await run_in_threadpool(queues.take, question.link, question.after)
        if events is not None or time.monotonic() > end or node.waiters.stopped:
            return _signed_response(node, peer, nonce, encode_events(events))
        await asyncio.sleep(_POLL)


@_signed_operation("/passed-events", _PASSED.openapi, PassedOut)
async def pass_events(request: Request, node: TheNode) -> Response:
    """Pass on events of a source of this node that published at the peer. Signed."""
    peer, nonce, body = await _signed(request, node)
    passed = await parse_off_loop(body, lambda: _PASSED.parse(body))
    valid = node.office.admission.judge_publish(peer.domain, passed.id, passed.proof).valid
    if valid:
        await node.intake.accept_passed(passed.id, [Record(EVENT, **event.model_dump()) for event in passed.events])
    return _json(node, peer, nonce, {"valid": valid})


def _read_wants(body: bytes) -> tuple[WantsRequest, dict[str, int] | None]:
    request = _WANTS.parse(body)
    for want in request.added:
        check_want(want)
    wants = WantsRequest(
        request.link,
        request.session,
        request.base,
        request.version,
        tuple(request.added),
        tuple(request.removed),
        request.chunk,
        request.more,
    )
    return wants, request.after


async def _signed(request: Request, node: Node) -> tuple[Peer, str, bytes]:
    """The peer that signed the request, the nonce, and the body. Raises AuthenticationError.

    Nothing of the body is read if the headers are not signed.
    """
    signed_http, headers = node.office.signed_http, request.headers
    peer = signed_http.signer(request.method, request.url.path, headers)
    body = await read_bytes(request, node)
    nonce = signed_http.accept(peer, headers, body)
    node.office.peers.mark_joined(peer.domain)
    return peer, nonce, body


def _json(node: Node, peer: Peer, nonce: str, value: object) -> Response:
    return _signed_response(node, peer, nonce, orjson.dumps(value))


def _signed_response(node: Node, peer: Peer, nonce: str, body: bytes) -> Response:
    return Response(body, 200, node.office.signed_http.response_headers(peer, nonce, body), "application/json")
