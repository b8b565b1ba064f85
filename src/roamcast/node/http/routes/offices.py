"""Peers of this office: list them, find the nearest, invite and remove."""

from __future__ import annotations

from math import inf
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from roamcast.errors import NotFoundError
from roamcast.model import iso
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import Operator, TheNode
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.schemas.offices import InvitationOut, OfficeOut, OfficesOut, PeerOut
from roamcast.node.schemas import DomainIn

router = APIRouter(tags=["offices"], route_class=ApiRoute)

_DOMAIN = BodyParser(DomainIn)


@router.get("/offices")
async def list_offices(node: TheNode) -> OfficesOut:
    """List this office and its peers."""
    reachable, positions = node.office.sender.states(), node.discovery.positions
    peers = [
        PeerOut(
            domain=peer.domain,
            url=peer.url,
            at=positions.get(peer.domain),
            reachable=reachable.get(peer.domain, False),
            last_response_at=_time(node.discovery.last_response(peer.domain)),
        )
        for peer in node.office.peers.all()
    ]
    return OfficesOut(domain=node.settings.domain, url=node.office.url, at=node.settings.at, offices=peers)


@router.get("/offices/nearest")
async def find_nearest_office(
    node: TheNode, x: Annotated[float, Query(allow_inf_nan=False)], y: Annotated[float, Query(allow_inf_nan=False)]
) -> OfficeOut:
    """Find the node nearest to a point, among this one and its reachable peers: where to register.

    Ties are broken by `domain`. Nodes without a position are ignored; if none has one, this node is returned.
    """
    node.space.check_point(x, y)
    reachable, positions = node.office.sender.states(), node.discovery.positions
    here = (node.settings.domain, node.office.url, node.settings.at)
    peers = [
        (peer.domain, peer.url, positions.get(peer.domain))
        for peer in node.office.peers.all()
        if reachable.get(peer.domain)
    ]
    candidates = sorted((here, *peers))
    distances = [inf if at is None else float(node.space.distance(x, y, *at)) for *_, at in candidates]
    domain, url, at = candidates[distances.index(min(distances))] if min(distances) < inf else here
    return OfficeOut(domain=domain, url=url, at=at)


@router.delete("/offices/{domain}", status_code=204, dependencies=[Operator], responses=errors(404))
async def expel_office(domain: str, node: TheNode) -> None:
    """Remove a peer: its requests are refused, and its sources are dropped here.

    Letters for it wait until it joins again. Remove it at every other node too. Requires the operator token.
    """
    if not await run_in_threadpool(node.office.peers.remove, domain):
        raise NotFoundError(f"unknown office {domain!r}", where="domain", hint="GET /v1/offices lists the peers")
    await node.office.sender.forget(domain)


@router.post("/office/invitations", dependencies=[Operator], openapi_extra=_DOMAIN.openapi)
async def invite_office(request: Request, node: TheNode) -> InvitationOut:
    """Invite the node of a domain to join within an hour. Requires the operator token."""
    domain = (await _DOMAIN.read(request, node)).domain
    return InvitationOut(domain=domain, invitation=(await node.office.membership.invite(domain)).code)


def _time(at: int | None) -> str | None:
    return None if at is None else iso(at)
