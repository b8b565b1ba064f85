"""What offices say to each other, and how they come to know each other."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.deliver.addressing import home_of
from roamcast.deliver.messages import (
    AddressUpdate,
    AddressUpdateReceipt,
    BundleReceipt,
    ChunkReceipt,
    LocationQuery,
    LocationReply,
    MailboxChunk,
    MailboxClaim,
    PeerMessage,
)
from roamcast.deliver.port import NOBODY
from roamcast.errors import PermissionDeniedError
from roamcast.node.http.dependencies import Operator, TheNode
from roamcast.node.http.request_parsing import BodyParser, read_bytes
from roamcast.node.peers.discovery_codec import decode_asked, encode
from roamcast.node.peers.message_codec import decode
from roamcast.node.peers.peer_file import Peer
from roamcast.node.schemas import DomainIn, IdentityIn, IntroductionIn, JoinIn, VouchIn
from roamcast.node.service import Node
from roamcast.security.move_proofs import LAST_EPOCH, Warrant

router = APIRouter(tags=["offices"])

_DOMAIN = BodyParser(DomainIn)
_JOIN = BodyParser(JoinIn)
_INTRODUCTION = BodyParser(IntroductionIn)
_VOUCH = BodyParser(VouchIn)
_IDENTITY = BodyParser(IdentityIn)


@router.post("/office/invitations", dependencies=[Operator], openapi_extra=_DOMAIN.openapi)
async def invite(request: Request, node: TheNode) -> dict[str, str]:
    """Invite the node of a domain to join, within an hour. Needs the operator's token."""
    domain = (await _DOMAIN.read(request, node)).domain
    return {"domain": domain, "invitation": (await node.post.membership.invite(domain)).code}


@router.post("/office/join", include_in_schema=False)
async def join(request: Request, node: TheNode) -> dict[str, str]:
    node.rate_limiter.check(request.client.host if request.client else "")
    return await node.post.membership.welcome(await _JOIN.read(request, node))


@router.post("/office/introductions", include_in_schema=False)
async def introduction(request: Request, node: TheNode) -> Response:
    peer, nonce, body = await _signed(request, node)
    met = await node.post.membership.meet(peer, _INTRODUCTION.parse(body))
    if met is not None:
        node.post.sender.heard_of(met.domain)
    return _answer(node, peer, nonce, {})


@router.post("/office/vouch", include_in_schema=False)
async def vouch(request: Request, node: TheNode) -> Response:
    peer, nonce, body = await _signed(request, node)
    given = _VOUCH.parse(body)
    warrant = Warrant.parse(given.warrant)
    verdict = await run_in_threadpool(node.post.arrivals.judge, given.name, given.epoch, warrant)
    return _answer(node, peer, nonce, {"verdict": verdict})


@router.post("/office/passports", include_in_schema=False)
async def identify(request: Request, node: TheNode) -> Response:
    peer, nonce, body = await _signed(request, node)
    given = _IDENTITY.parse(body)
    return _answer(node, peer, nonce, node.remote_sources.judge(peer.domain, given.id, given.proof)._asdict())


@router.post("/office/messages", include_in_schema=False)
async def messages(request: Request, node: TheNode) -> Response:
    peer, nonce, body = await _signed(request, node)
    given = decode(body)
    admitted = [message for each in given if (message := await _admitted(node, peer.domain, each)) is not None]
    node.post.actor.tell_all(admitted)
    if not given:  # a greeting: it has started, or hears us again
        node.post.sender.heard_of(peer.domain)
        node.post.actor.hurry()
    return _answer(node, peer, nonce, {})


@router.post("/office/sources", include_in_schema=False)
async def sources(request: Request, node: TheNode) -> Response:
    peer, nonce, body = await _signed(request, node)
    asked = await run_in_threadpool(decode_asked, body, node.space)
    if asked.ask.node != peer.domain:
        raise PermissionDeniedError(f"{peer.domain} asks as {asked.ask.node}", where="node")
    told = encode(await node.discovery.answer(peer.domain, asked))
    return Response(told, 200, node.post.signed_http.answer_headers(peer, nonce, told), "application/json")


async def _admitted(node: Node, peer: str, message: PeerMessage) -> PeerMessage | None:
    """An office speaks for itself alone; a mailbox is let go of only on word of the office it goes to, and letters on
    word of one that has been sent them.

    Only a home says that its subscriber has left for good, and where it is otherwise only the office that was asked; a
    home itself believes the subscriber alone.
    """
    if getattr(message, "epoch", 0) > LAST_EPOCH:
        return None
    match message:
        case LocationReply(name, office):
            asked = office != NOBODY and peer in node.post.claiming.get(name, ())
            return message if asked or home_of(name) == peer else None
        case MailboxClaim():
            return await node.post.arrivals.admitted(peer, message)
        case BundleReceipt() | LocationQuery() | MailboxChunk() | AddressUpdate() | AddressUpdateReceipt() if (
            message.office != peer
        ):
            return None
        case BundleReceipt(receiver, epoch=epoch):
            from_home = epoch > 0 or home_of(receiver) == peer
            return message if from_home and node.post.is_stamped(message) else None
        case AddressUpdate(name) if node.post.names.is_home_of(name):
            return message if await node.post.arrivals.believes(message) else None
        case ChunkReceipt(name):
            if node.post.handing.get(name) != peer:
                return None
            if message.complete:
                del node.post.handing[name]
            return message
        case _:
            return message


async def _signed(request: Request, node: Node) -> tuple[Peer, str, bytes]:
    body = await read_bytes(request, node)
    peer, nonce = node.post.signed_http.check(request.method, request.url.path, request.headers, body)
    node.post.peers.used(peer.domain)
    return peer, nonce, body


def _answer(node: Node, peer: Peer, nonce: str, value: object) -> Response:
    body = orjson.dumps(value)
    return Response(body, 200, node.post.signed_http.answer_headers(peer, nonce, body), "application/json")
