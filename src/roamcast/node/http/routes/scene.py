"""The scene: what the page draws."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse

from roamcast.errors import InputError, NotFoundError
from roamcast.node.http.dependencies import Operator, TheNode
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.responses import HEARTBEAT, HEARTBEAT_EVERY, STREAM, sse_message
from roamcast.node.scene import LAYERS, Change, Scene
from roamcast.node.schemas import SceneIn
from roamcast.node.waiting import wait_for

router = APIRouter(prefix="/scene", tags=["scene"])

_SCENE = BodyParser(SceneIn)
_GATHER = 0.05  # seconds; changes that come this close together are sent as one


def _scene(node: TheNode) -> Scene:
    if node.scene is None:
        raise NotFoundError("this node shows no scene", hint="start it with --scene")
    return node.scene


TheScene = Annotated[Scene, Depends(_scene)]


@router.get("", response_class=Response, responses={200: {"content": {"application/json": {}}}})
async def snapshot(scene: TheScene) -> Response:
    """The whole scene: layers of features by id, counters, title and space."""
    return Response(orjson.dumps(scene.snapshot()), media_type="application/json")


@router.post("", dependencies=[Operator], openapi_extra=_SCENE.openapi)
async def change(request: Request, node: TheNode, scene: TheScene) -> dict[str, Any]:
    """Change a layer of the scene. Needs the operator's token. The node's own layers cannot be changed."""
    given = await _SCENE.read(request, node)
    if given.layer in LAYERS:
        raise InputError(f"the node itself keeps the layer {given.layer}", where="layer", hint="choose another name")
    features = {id: feature.model_dump() for id, feature in given.set.items()}
    scene.apply(Change(given.layer, features, given.remove, given.clear, given.ttl), time.monotonic())
    return {"set": len(features)}


@router.get("/stream", response_class=StreamingResponse, responses=STREAM)
async def stream(scene: TheScene) -> StreamingResponse:
    """The scene as server-sent events: `snapshot` first, then `change` and, at most once a second, `counters`.

    Who reads too slowly gets changes joined together, or a snapshot again.
    """
    scene.check_room()
    return StreamingResponse(_stream(scene), headers={"cache-control": "no-store"}, media_type="text/event-stream")


async def _stream(scene: Scene) -> AsyncIterator[bytes]:
    with scene.watched() as watcher:
        while not scene.stopped:
            for name, data in watcher.take():
                yield sse_message(name, orjson.dumps(data).decode())
            if await wait_for(watcher.bell, HEARTBEAT_EVERY):
                await asyncio.sleep(_GATHER)
            else:
                yield HEARTBEAT
