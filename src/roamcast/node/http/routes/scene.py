"""The scene: what the page draws."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse

from roamcast.errors import InputError, NotFoundError
from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import Operator, TheNode
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.responses import HEARTBEAT, HEARTBEAT_EVERY, STREAM, sse_message, sse_response
from roamcast.node.http.schemas.status import SceneChangedOut, SceneOut
from roamcast.node.scene import LAYERS, LayerChange, Scene
from roamcast.node.schemas import SceneIn
from roamcast.node.waiting import wait_for

router = APIRouter(prefix="/scene", tags=["scene"], route_class=ApiRoute)

_SCENE = BodyParser(SceneIn)
_COLLECT = 0.05  # seconds; changes within this time are sent as one


def _scene(node: TheNode) -> Scene:
    if node.scene is None:
        raise NotFoundError("this node has no scene", hint="start it with --scene")
    return node.scene


TheScene = Annotated[Scene, Depends(_scene)]


@router.get("", response_class=Response, responses={200: {"model": SceneOut}, **errors(404)})
async def show_scene(scene: TheScene) -> Response:
    """Show the whole scene: layers of features by id, counters, title and space."""
    return Response(orjson.dumps(scene.snapshot()), media_type="application/json")


@router.post("", dependencies=[Operator], openapi_extra=_SCENE.openapi, responses=errors(404, 429))
async def change_scene(request: Request, node: TheNode, scene: TheScene) -> SceneChangedOut:
    """Change a layer of the scene. Requires the operator token. The node's own layers cannot be changed."""
    body = await _SCENE.read(request, node)
    if body.layer in LAYERS:
        raise InputError(f"layer {body.layer!r} belongs to the node", where="layer", hint="use another name")
    features = {id: feature.model_dump() for id, feature in body.set.items()}
    scene.apply(LayerChange(body.layer, features, body.remove, body.clear, body.ttl), time.monotonic())
    return SceneChangedOut(set=len(features))


@router.get("/stream", response_class=StreamingResponse, responses=STREAM | errors(404, 429))
async def stream_scene(scene: TheScene) -> StreamingResponse:
    """Stream the scene as server-sent events: `snapshot` first, then `change` and, at most once a second, `counters`.

    A slow reader gets combined changes, or another snapshot.
    """
    scene.check_capacity()
    return sse_response(_stream(scene))


async def _stream(scene: Scene) -> AsyncIterator[bytes]:
    with scene.watch() as watcher:
        while not scene.stopped:
            for name, data in watcher.take():
                yield sse_message(name, orjson.dumps(data).decode())
            if await wait_for(watcher.event, HEARTBEAT_EVERY):
                await asyncio.sleep(_COLLECT)
            else:
                yield HEARTBEAT
