"""The mailboxes of many subscribers at once, for those who host them."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from roamcast.errors import InputError, RoamcastError
from roamcast.node.http.dependencies import TheNode
from roamcast.node.http.errors import told
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.responses import pulled_json
from roamcast.node.schemas import PullIn
from roamcast.node.service import Node

router = APIRouter(tags=["mailbox"])

_PULL = BodyParser(PullIn, bulk="mailboxes")
_JSON: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}}}}


@router.post("/mailboxes/pull", response_class=Response, responses=_JSON, openapi_extra=_PULL.openapi)
async def pull_many(request: Request, node: TheNode) -> Response:
    """Many mailboxes at once, for those who host many subscribers: acknowledge what was read, and get the next letters.

    Each is given by the token that opens it, once. In the answer's `mailboxes`, in the same order, is for each what
    pulling it alone would give, or an `error`: then nothing of it was acknowledged.
    """
    asked, _ = await _PULL.read_bulk(request, node)
    if len(asked) > node.limits.mailboxes:
        raise InputError(
            f"{len(asked)} mailboxes in one request",
            where="mailboxes",
            hint=f"ask for at most {node.limits.mailboxes} at a time",
        )
    share = node.limits.pull_bytes // len(asked)
    parts = await asyncio.gather(*(_pull_one(node, it, share) for it in asked))
    return Response(f'{{"mailboxes":[{",".join(parts)}]}}', media_type="application/json")


async def _pull_one(node: Node, asked: PullIn, share: int) -> str:
    try:
        name = node.auth.reader(asked.token).name
        limit = min(asked.limit, node.limits.pull)
        count, pulled = await node.post.mailboxes.acknowledge_and_pull(name, asked.ack, limit, share)
    except RoamcastError as error:
        return orjson.dumps({"error": told(error)}).decode()
    node.metrics.letters_delivered.inc(count)
    return pulled_json(pulled)
