"""The nodes that know each other, and which of them is near."""

from __future__ import annotations

from math import inf
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from roamcast.errors import NotFoundError
from roamcast.model import iso
from roamcast.node.http.dependencies import Operator, TheNode

router = APIRouter(tags=["offices"])


@router.get("/offices")
async def offices(node: TheNode) -> dict[str, Any]:
    """This office and those it knows: `domain`, `url`, where each is (`at`), whether it `answers`, and when it was last
    heard to speak of its sources (`heard_at`).
    """
    states, places = node.post.sender.states(), node.discovery.places
    known = [
        {
            "domain": peer.domain,
            "url": peer.url,
            "at": places.get(peer.domain),
            "answers": states.get(peer.domain, False),
            "heard_at": _time(node.control.peer_sources.last_answer(peer.domain)),
        }
        for peer in node.post.peers.all()
    ]
    return {"domain": node.settings.domain, "url": node.post.url, "at": node.settings.at, "offices": known}


@router.get("/offices/nearest")
async def nearest(
    node: TheNode,
    x: Annotated[float, Query(allow_inf_nan=False)],
    y: Annotated[float, Query(allow_inf_nan=False)],
) -> dict[str, Any]:
    """The node that is nearest to a point, of this one and those that answer: where to register. Of several that are
    as near, and of those that do not say where they are, the one whose `domain` comes first.
    """
    node.space.check_point(x, y)
    states, places = node.post.sender.states(), node.discovery.places
    here = (node.settings.domain, node.post.url, node.settings.at)
    others = [(it.domain, it.url, places.get(it.domain)) for it in node.post.peers.all() if states.get(it.domain)]
    known = sorted((here, *others))
    far = [inf if at is None else float(node.space.distance(x, y, *at)) for *_, at in known]
    domain, url, at = known[far.index(min(far))] if min(far) < inf else here
    return {"domain": domain, "url": url, "at": at}


@router.delete("/offices/{domain}", status_code=204, dependencies=[Operator])
async def expel(domain: str, node: TheNode) -> None:
    """Have nothing more to do with an office that has joined: it is heard no more, and its sources are gone from here.

    Letters for it wait until it has joined again. The others are to be told one by one. Needs the operator's token.
    """
    if not await run_in_threadpool(node.post.peers.remove, domain):
        raise NotFoundError(f"no office {domain!r} is known here", where="domain", hint="see GET /v1/offices")
    await node.post.sender.forget(domain)


def _time(at: int | None) -> str | None:
    return None if at is None else iso(at)
