"""Paths outside /v1: health, metrics, and the page with its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from xstatic.pkg import leaflet

from roamcast.model import iso
from roamcast.node.health import Problem
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import TheNode
from roamcast.node.http.schemas.status import ArchiveOut, HealthOut, LiveOut, ReadyOut
from roamcast.node.service import Node

router = APIRouter(tags=["status"], route_class=ApiRoute)

_PAGE = Path(__file__).parent.parent / "page"


_OK, _DEGRADED, _NOT_READY = 200, 207, 503


@router.get(
    "/healthz",
    response_class=Response,
    responses={_OK: {"model": HealthOut}, _DEGRADED: {"model": HealthOut, "description": "Degraded"}},
)
def show_health(node: TheNode) -> Response:
    """Show the health of the node and its pipeline. 200 and `status` `ok`, or 207 and `degraded`: the node works, but
    something needs attention.
    """
    problems = node.health.problems()
    content = {
        "status": "degraded" if problems else "ok",
        "problems": [_problem_json(problem) for problem in problems],
        "domain": node.settings.domain,
        "space": node.settings.space,
        "lag": node.health.lag()._asdict(),
        "pipeline": _pipeline_json(node),
    }
    return _json(content, _DEGRADED if problems else _OK)


@router.get("/healthz/live")
async def show_liveness() -> LiveOut:
    """Respond while the process serves requests, whatever else is wrong."""
    return LiveOut()


@router.get(
    "/healthz/ready",
    response_class=Response,
    responses={_OK: {"model": ReadyOut}, _NOT_READY: {"model": ReadyOut, "description": "Not ready"}},
)
def show_readiness(node: TheNode) -> Response:
    """Tell whether the node accepts events and changes. 503 if its journal or registry refuses writes, or it is
    stopping.
    """
    problems = node.health.not_ready()
    is_ready = not problems and not node.health.is_stopping
    content = {
        "status": "ok" if is_ready else "stopping" if node.health.is_stopping else "not_ready",
        "problems": [_problem_json(problem) for problem in problems],
    }
    return _json(content, _OK if is_ready else _NOT_READY)


@router.get("/metrics", response_class=PlainTextResponse)
def show_metrics(node: TheNode) -> Response:
    """Show metrics in the Prometheus text format."""
    return Response(node.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})


@router.get("/", include_in_schema=False)
async def index() -> FileResponse:
    return FileResponse(_PAGE / "index.html")


def mount_files(app: FastAPI) -> None:
    """Serve the files of the page."""
    app.mount("/static/leaflet", StaticFiles(directory=leaflet.BASE_DIR))
    app.mount("/static", StaticFiles(directory=_PAGE))


def _problem_json(problem: Problem) -> dict[str, str]:
    return {"kind": problem.kind, "since": iso(problem.since), "detail": problem.detail}


def _pipeline_json(node: Node) -> dict[str, Any] | None:
    status = node.health.pipeline_status()
    if status is None:
        return None
    return {
        "id": status.pipeline,
        "batch": status.batch,
        "counters": dict(status.counters),
        "written_at": iso(status.written_at),
        "running_batch": status.running_batch,
        "running_since": None if status.running_since is None else iso(status.running_since),
        "waiting_for_storage": status.waiting_for_storage,
        "partitioning": status.partitioning,
        "archive": status.archive and {name: status.archive[name] for name in ArchiveOut.model_fields},
    }


def _json(content: object, code: int) -> Response:
    return Response(orjson.dumps(content), code, {"cache-control": "no-store"}, "application/json")
