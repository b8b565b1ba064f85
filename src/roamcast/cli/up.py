"""`roamcast up`: a node, a pipeline and a scenario, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from roamcast.node.server import NodeServer
    from roamcast.scenarios import Scenario

__all__ = ["up"]


def up(
    data: Annotated[Path | None, typer.Option(help="Folder of the data.", show_default="./roamcast-data")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen at; 0 takes a free one.", show_default="8080")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen at.", show_default="127.0.0.1")] = None,
    scenario: Annotated[
        str, typer.Option(help="A small world that lives at the node; 'none' for an empty one.")
    ] = "city",
    places: Annotated[Path | None, typer.Option(help="GeoJSON with the places that subscriptions may name.")] = None,
    scene: Annotated[bool, typer.Option("--scene/--no-scene", help="Show positions to everybody on the page.")] = True,
) -> None:
    """Start everything on this machine: a node, the pipeline, a live scenario and the page. Ctrl-C stops it.

    Example: roamcast up --port 8080 --data ./roamcast-data
    """
    import asyncio

    from roamcast.errors import InputError
    from roamcast.node.server import NodeServer
    from roamcast.node.settings import settings_from
    from roamcast.pipeline.java import find_java
    from roamcast.scenarios import SCENARIOS

    world = None
    if scenario != "none":
        if scenario not in SCENARIOS:
            raise InputError(f"there is no scenario {scenario!r}", hint=f"choose one of: none, {', '.join(SCENARIOS)}")
        world = SCENARIOS[scenario]()
    find_java()  # better said now than by a child in half a minute
    title = world.title if world else None
    settings = settings_from(data=data, port=port, host=host, places=places, scene=scene, title=title)
    asyncio.run(_run(NodeServer(settings), settings.data.absolute(), world))


async def _run(server: NodeServer, data: Path, world: Scenario | None) -> None:
    """Until the server is stopped, by a signal or by a part that cannot go on; then everything stops."""
    import asyncio
    import sys

    from roamcast.cli.keeper import keep_running
    from roamcast.node.folder import DataFolder

    stop = asyncio.Event()
    parts: list[asyncio.Task[None]] = []

    def begin(url: str) -> None:
        typer.echo(f"roamcast is up: {url}/  (API: {url}/docs, data: {data}, Ctrl-C stops it)")
        typer.echo("The pipeline starts in the background; letters begin to flow in a few seconds.")
        command = [sys.executable, "-m", "roamcast", "pipeline", "--data", str(data)]
        parts.append(asyncio.create_task(keep_running("pipeline", command, stop)))
        if world:
            token = DataFolder(data).operator_token()
            parts.append(asyncio.create_task(world.run(url, token, stop, data / "scenarios")))
        for part in parts:
            part.add_done_callback(lambda done: server.stop() if done.exception() else None)

    try:
        await server.serve_node(begin)
    finally:
        stop.set()
        await asyncio.gather(*parts, return_exceptions=True)
    for part in parts:
        part.result()
