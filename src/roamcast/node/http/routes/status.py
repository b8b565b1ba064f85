"""Paths outside /v1: health, metrics, and the page with its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from xstatic.pkg import leaflet

from roamcast.node.http.dependencies import TheNode

router = APIRouter(tags=["status"])

_PAGE = Path(__file__).parent.parent / "page"


@router.get("/healthz")
async def health(node: TheNode) -> dict[str, Any]:
    """`status` is `ok`, or `degraded` with the reason in `problem`. `pipeline` is its last reported batch."""
    status = node.outbox_reader.pipeline_status
    problem = node.outbox_reader.problem or node.control.problem
    return {
        "status": "ok" if problem is None else "degraded",
        "problem": problem,
        "domain": node.settings.domain,
        "space": node.settings.space,
        "pipeline": status and {"id": status.pipeline, "batch": status.batch, "counters": dict(status.counters)},
    }


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(node: TheNode) -> Response:
    """Metrics in the Prometheus text format."""
    return Response(node.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})


@router.get("/", include_in_schema=False)
async def index() -> FileResponse:
    return FileResponse(_PAGE / "index.html")


def mount_files(app: FastAPI) -> None:
    """Serve the files of the page."""
    app.mount("/static/leaflet", StaticFiles(directory=leaflet.BASE_DIR))
    app.mount("/static", StaticFiles(directory=_PAGE))
