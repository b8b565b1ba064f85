"""The ASGI app of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from roamcast import __version__
from roamcast.node.http.errors import handle_errors
from roamcast.node.http.openapi import describe, errors
from roamcast.node.http.routes import (
    arrivals,
    demand,
    entities,
    events,
    letters,
    mailboxes,
    offices,
    peers,
    scene,
    sources,
    status,
    subscriptions,
)
from roamcast.node.service import Node
from roamcast.settings_model import NodeSettings

__all__ = ["create_app"]

_ABOUT = """
Publish/subscribe that follows you. Register a source, a subscriber or a gateway, keep the token it returns, and send it
as `Authorization: Bearer <token>`.

**Removing a subscription.** Events acknowledged before the request to remove it still become letters. Events published
after the response do not. Letters in the mailbox stay until they are acknowledged.
"""


def create_app(settings: NodeSettings, url: str = "") -> FastAPI:
    """The ASGI app of a node that is reached at `url`. It opens the node at startup and closes it at shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        node = await run_in_threadpool(Node, settings, url)
        app.state.node = app.state.for_visitors.state.node = node
        async with node.running():
            yield

    app: FastAPI = FastAPIOffline(  # /docs without a network
        title="roamcast", version=__version__, description=_ABOUT, lifespan=lifespan
    )
    app.router.routes.extend(_routes())
    status.mount_files(app)
    if settings.cors_origins:
        _allow_pages_of(app, settings.cors_origins)
    handle_errors(app)
    describe(app)
    app.state.for_visitors = _app_for_visitors()
    return app


def _allow_pages_of(app: FastAPI, origins: Sequence[str]) -> None:
    """Let browsers show responses to web pages of other origins. They send tokens explicitly, never cookies."""
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("GET", "POST", "PUT", "DELETE"),
        allow_headers=("Authorization", "Content-Type", "Last-Event-ID"),
        expose_headers=("WWW-Authenticate",),
    )


def _app_for_visitors() -> FastAPI:
    """What peers can request for subscribers that visit them, see `home_route`; no other route can be reached."""
    app = FastAPI(openapi_url=None)
    for router in (events.own, entities.own, subscriptions.router):
        app.include_router(router, prefix="/v1")
    handle_errors(app)
    return app


@cache
def _routes() -> Sequence[BaseRoute]:
    """The routes of every node. To analyse their parameters takes longer than to start a node."""
    api = APIRouter(prefix="/v1", generate_unique_id_function=_operation_id)
    busiest_first = (
        mailboxes.router, letters.router, events.router, events.own, demand.router, entities.own, entities.router,
        sources.router, subscriptions.router, arrivals.router, offices.router, peers.router, scene.router,
    )  # fmt: skip
    for router in busiest_first:
        api.include_router(router)
    whole = APIRouter(generate_unique_id_function=_operation_id)
    for router in (api, status.router):
        whole.include_router(router, responses=errors(422, 500))
    return whole.routes


def _operation_id(route: APIRoute) -> str:
    """The name of the function: stable, and readable in generated clients."""
    return route.name
