"""The app: one function puts it together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.concurrency import run_in_threadpool

from roamcast import __version__
from roamcast.node.http.errors import ERROR_RESPONSES, handle_errors
from roamcast.node.http.routes import (
    backbone,
    demand,
    entities,
    events,
    letters,
    mailbox,
    mailboxes,
    offices,
    page,
    scene,
    status,
    subscriptions,
)
from roamcast.node.service import Node
from roamcast.settings import NodeSettings

__all__ = ["create_app"]

_ABOUT = """
Publish/subscribe that follows you. Register a source or a subscriber, keep the token you get, and send it as
`Authorization: Bearer <token>`.

**Removing a subscription.** Events acknowledged before the removal was asked for still become letters; events posted
after the removal was acknowledged do not. Letters in the mailbox stay until they are acknowledged.
"""


def create_app(settings: NodeSettings, url: str = "") -> FastAPI:
    """The node as an ASGI app, reached at `url`. It opens its data when it starts and closes it when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        node = await run_in_threadpool(Node, settings, url)
        app.state.node = node
        async with node.running():
            yield

    app: FastAPI = FastAPIOffline(  # /docs without a network
        title="roamcast", version=__version__, description=_ABOUT, lifespan=lifespan, responses=ERROR_RESPONSES
    )
    api = APIRouter(prefix="/v1")
    busiest_first = (mailbox, mailboxes, letters, events, demand, entities, subscriptions, backbone, offices, scene)
    for module in busiest_first:
        api.include_router(module.router)
    app.include_router(api)
    app.include_router(status.router)
    app.include_router(page.router)
    page.mount_files(app)
    handle_errors(app)
    return app
