"""How the node is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from roamcast.node.http.dependencies import TheNode

router = APIRouter(tags=["status"])


@router.get("/healthz")
async def health(node: TheNode) -> dict[str, Any]:
    """`status` is `ok`, or `degraded` with the reason in `trouble`; `pipeline` is the last batch it told of."""
    sender = node.outbox_reader.sender
    trouble = node.outbox_reader.trouble or node.control.problem
    return {
        "status": "ok" if trouble is None else "degraded",
        "trouble": trouble,
        "domain": node.settings.domain,
        "space": node.settings.space,
        "pipeline": sender and {"id": sender.pipeline, "batch": sender.batch, "counters": dict(sender.counters)},
    }


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(node: TheNode) -> Response:
    """For Prometheus."""
    return Response(node.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})
