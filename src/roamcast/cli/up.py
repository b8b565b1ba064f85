"""`roamcast up`: a node, a pipeline and a scenario, in one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    import asyncio

    from roamcast.lab.scenarios import Scenario
    from roamcast.node.server import NodeServer

__all__ = ["up"]

_DOMAINS = ("north", "south", "west", "east", "centre", "harbour", "heath", "hill")


class _Other(NamedTuple):
    """A node besides the first."""

    domain: str
    port: int
    shared: Sequence[str]  # options that all nodes have


def up(
    data: Annotated[Path | None, typer.Option(help="Folder of the data.", show_default="./roamcast-data")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen at; 0 takes a free one.", show_default="8080")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen at.", show_default="127.0.0.1")] = None,
    scenario: Annotated[
        str, typer.Option(help="A small world that lives at the node; 'none' for an empty one.")
    ] = "city",
    domains: Annotated[
        int | None, typer.Option(min=1, max=8, help="Nodes to run, each of its own domain.", show_default="1")
    ] = None,
    places: Annotated[Path | None, typer.Option(help="GeoJSON with the places that subscriptions may name.")] = None,
    scene: Annotated[bool, typer.Option("--scene/--no-scene", help="Show positions to everybody on the page.")] = True,
) -> None:
    """Start everything on this machine: nodes, the pipeline, a live scenario and the page. Ctrl-C stops it.

    Example: roamcast up --port 8080 --data ./roamcast-data

    Example: roamcast up --scenario roaming

    Example: roamcast up --scenario conference --data ./conference-data
    """
    import asyncio

    from roamcast.errors import InputError
    from roamcast.node.server import NodeServer
    from roamcast.pipeline.query.java import find_java
    from roamcast.settings import node_settings

    world = _world(scenario)
    needed = tuple(world.domains) if world else ()
    if domains is not None and domains < len(needed):
        raise InputError(f"{scenario} needs {len(needed)} nodes", where="domains", hint="leave --domains out")
    if world and world.places and places:
        raise InputError(f"{scenario} has places of its own", where="places", hint="leave --places out")
    find_java()  # better said now than by a child in half a minute
    first, *more = list(dict.fromkeys([*needed, *_DOMAINS]))[: domains or len(needed) or 1]
    settings = node_settings(
        data=data, port=port, host=host, scene=scene, domain=first if more else None,
        places=world.places or places if world else places, title=world.title if world else None,
        space=world.space if world else None,
    )  # fmt: skip
    shared = ["--data", str(settings.data.absolute()), "--space", settings.space]
    shared += ["--places", str(settings.places.absolute())] if settings.places else []
    others = [_Other(name, settings.port and settings.port + step, shared) for step, name in enumerate(more, start=1)]
    asyncio.run(_run(NodeServer(settings), settings.data.absolute(), world, others))


def _world(scenario: str) -> Scenario | None:
    """Raises InputError for one that there is not."""
    from roamcast.errors import InputError
    from roamcast.lab.scenarios import SCENARIOS

    if scenario == "none":
        return None
    if scenario not in SCENARIOS:
        raise InputError(f"there is no scenario {scenario!r}", hint=f"choose one of: none, {', '.join(SCENARIOS)}")
    return SCENARIOS[scenario]()


async def _run(server: NodeServer, data: Path, world: Scenario | None, others: Sequence[_Other]) -> None:
    """Until the server is stopped, by a signal or by a part that cannot go on; then everything stops."""
    import asyncio
    import sys

    from roamcast.cli.keeper import keep_running
    from roamcast.node.data_folder import DataFolder

    stop = asyncio.Event()
    parts: list[asyncio.Task[None]] = []

    def begin(url: str) -> None:
        typer.echo(f"roamcast is up: {url}/  (API: {url}/docs, data: {data}, Ctrl-C stops it)")
        typer.echo("The pipeline starts in the background; letters begin to flow in a few seconds.")
        command = [sys.executable, "-m", "roamcast", "pipeline", "--data", str(data)]
        parts.append(asyncio.create_task(keep_running("pipeline", command, stop)))
        token = DataFolder(data).operator_token()
        parts.extend(asyncio.create_task(_keep_joined(other, url, token, stop)) for other in others)
        if world:
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


async def _keep_joined(other: _Other, url: str, token: str, stop: asyncio.Event) -> None:
    """Run a node that joins the one at `url`."""
    import sys

    from roamcast.cli.keeper import keep_running
    from roamcast.client import AsyncClient

    async with AsyncClient(url, token) as operator:
        invitation = await operator.invite(other.domain)
    command = [sys.executable, "-m", "roamcast", "node", *other.shared, "--domain", other.domain]
    command += ["--port", str(other.port), "--join", url]
    await keep_running(f"node of {other.domain}", command, stop, {"ROAMCAST_INVITATION": invitation})
