"""Commands that run servers: up, node, pipeline; and compile."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from roamcast.cli.options import SpaceName, require
from roamcast.errors import InputError

if TYPE_CHECKING:
    import asyncio

    from roamcast.lab.scenarios import Scenario
    from roamcast.node.server import NodeServer

__all__ = ["compile", "node", "pipeline", "up"]

_DOMAINS: Final = ("north", "south", "west", "east", "centre", "harbour", "heath", "hill")

DataFolderOption = Annotated[Path | None, typer.Option(help="Data folder.", show_default="./roamcast-data")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.", show_default="8080")]
Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
ArchiveOption = Annotated[
    bool | None,
    typer.Option("--archive/--no-archive", help="Keep events and tracks for backtests.", show_default="no"),
]
PlacesOption = Annotated[Path | None, typer.Option(help="GeoJSON file of the places that subscriptions can name.")]


class _OtherNode(NamedTuple):
    """A node that joins the first one."""

    domain: str
    port: int
    options: Sequence[str]


def up(
    data: DataFolderOption = None,
    port: Port = None,
    host: Host = None,
    scenario: Annotated[str, typer.Option(help="Scenario to run: city, conference, relief, roaming or none.")] = "city",
    domains: Annotated[
        int | None, typer.Option(min=1, max=8, help="Number of nodes, each with a domain of its own.", show_default="1")
    ] = None,
    places: PlacesOption = None,
    scene: Annotated[bool, typer.Option("--scene/--no-scene", help="Show positions to everybody on the page.")] = True,
    archive: ArchiveOption = None,
) -> None:
    """Start everything on this machine: nodes, the pipeline, a scenario and the live page. Stop it with Ctrl-C.

    Example: roamcast up --port 8080 --data ./roamcast-data

    Example: roamcast up --scenario roaming

    Example: roamcast up --scenario conference --data ./conference-data
    """
    require("node", "pipeline")
    import asyncio

    from roamcast.pipeline.query.session import find_java
    from roamcast.settings import node_settings

    with _quick_imports():
        from roamcast.node.server import NodeServer

    world = _find_scenario(scenario)
    needed = tuple(world.domains) if world else ()
    if domains is not None and domains < len(needed):
        raise InputError(f"scenario {scenario!r} needs {len(needed)} nodes", where="--domains", hint="omit --domains")
    if world and world.places and places:
        raise InputError(f"scenario {scenario!r} has its own places", where="--places", hint="omit --places")
    find_java()  # fail now rather than in the pipeline process half a minute later
    first, *others = list(dict.fromkeys([*needed, *_DOMAINS]))[: domains or len(needed) or 1]
    settings = node_settings(
        data=data, port=port, host=host, scene=scene, domain=first if others else None,
        places=world.places or places if world else places, title=world.title if world else None,
        space=world.space if world else None, archive=archive,
    )  # fmt: skip
    options = ["--data", str(settings.data.absolute()), "--space", settings.space]
    options += ["--places", str(settings.places.absolute())] if settings.places else []
    options += ["--archive"] if settings.archive else []
    nodes = [
        _OtherNode(name, settings.port and settings.port + step, options) for step, name in enumerate(others, start=1)
    ]
    asyncio.run(_run_all(NodeServer(settings), settings.data.absolute(), world, nodes, archive=settings.archive))


def node(
    data: DataFolderOption = None,
    port: Port = None,
    host: Host = None,
    domain: Annotated[str | None, typer.Option(help="Domain that the node serves.", show_default="local")] = None,
    join: Annotated[str | None, typer.Option(help="URL of a node to join.")] = None,
    invitation: Annotated[
        str | None, typer.Option(help="Invitation from `roamcast invite`; prefer ROAMCAST_INVITATION.")
    ] = None,
    public_url: Annotated[
        str | None, typer.Option(help="URL at which others reach this node, if not where it listens.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM); turns TLS on.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust in other nodes (PEM).")] = None,
    store: Annotated[
        str | None, typer.Option(help="postgresql://… for registry and post office, instead of files.")
    ] = None,
    space: Annotated[
        SpaceName | None, typer.Option(help="'geographic': degrees; 'planar': metres.", show_default="geographic")
    ] = None,
    at: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Position of the node, for clients that look for the nearest one."),
    ] = None,
    places: PlacesOption = None,
    storage: Annotated[
        str | None,
        typer.Option(help="The pipeline's storage, with the outbox.", show_default="the data folder"),
    ] = None,
    scene: Annotated[
        bool | None,
        typer.Option("--scene/--no-scene", help="Show positions to everybody on the page.", show_default="no"),
    ] = None,
    archive: ArchiveOption = None,
) -> None:
    """Run one node: the registry, event intake and post office of a domain. Stop it with Ctrl-C.

    Options override environment variables (ROAMCAST_PORT=9000) and the settings file: see `roamcast config show`.

    Example: roamcast node --port 8080 --data ./roamcast-data --scene

    Example: roamcast node --domain south --join http://north.example:8080 --invitation CODE
    """
    require("node")
    from roamcast.settings import node_settings

    settings = node_settings(
        data=data, port=port, host=host, domain=domain, join=join, invitation=invitation, public_url=public_url,
        tls_cert=tls_cert, tls_key=tls_key, ca=ca, store=store, space=space and space.value, at=at, places=places,
        storage=storage, scene=scene, archive=archive,
    )  # fmt: skip
    with _quick_imports():
        from roamcast.node.server import serve  # after the settings, so that an invalid one is reported at once

    serve(settings, ready=lambda url: typer.echo(f"node {settings.domain} at {url}  (API: {url}/docs)"))


def pipeline(
    data: DataFolderOption = None,
    create: Annotated[bool, typer.Option("--create", help="Create the data folder if there is none.")] = False,
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Keep the state in pipeline/earlier-N and start a new pipeline. Letters may be repeated.",
        ),
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master.", show_default="local[2]")] = None,
    host: Annotated[
        str | None, typer.Option(help="This machine's address as the workers reach it.", show_default="127.0.0.1")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder on each worker's host for state files.", show_default="a temporary one")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            help="'replicated': workers hold the whole index; 'partitioned': a shard each; 'auto': by size.",
            show_default="auto",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Shards of the partitioned plan; 0 keeps the number, at first one per Spark core.",
            show_default="0",
        ),
    ] = None,
    partitioner: Annotated[
        str | None,
        typer.Option(
            help="How the partitioned plan divides subscriptions: 'curve', 'drtcluster', 'kdtree' or 'hashing'. "
            "Parameters of DRt-Cluster are settings: see `roamcast config docs`.",
            show_default="curve",
        ),
    ] = None,
    matcher: Annotated[
        str | None,
        typer.Option(
            help="How shards match: 'index', or 'one_by_one' for experiments, as in the paper on DRt-Cluster.",
            show_default="index",
        ),
    ] = None,
    records: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of records in a batch.", show_default="50000")
    ] = None,
    outbox: Annotated[
        int | None,
        typer.Option(min=1, help="Batches that can wait for an office before matching pauses.", show_default="1000"),
    ] = None,
    history: Annotated[
        float | None,
        typer.Option(min=0, help="Minutes that ended bindings are kept for late events.", show_default="60"),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Shared storage for state, checkpoint and outbox, such as s3://bucket/prefix: another host can "
            "continue the pipeline.",
            show_default="the data folder",
        ),
    ] = None,
    archive: ArchiveOption = None,
    archive_days: Annotated[
        float | None, typer.Option(min=0, help="Days that the archive keeps what it has.", show_default="30")
    ] = None,
) -> None:
    """Match events with subscriptions on Spark: read the journals, write letters.

    Example: roamcast pipeline --data ./roamcast-data

    Example: roamcast pipeline --plan partitioned --workers 4 --partitioner drtcluster
    """
    require("pipeline")
    from roamcast.settings import drtcluster_settings, node_settings, pipeline_settings

    settings = pipeline_settings(
        master=master, host=host, cache=cache, plan=plan, workers=workers, partitioner=partitioner, matcher=matcher,
        records=records, outbox=outbox, history=history, storage=storage, archive=archive, archive_days=archive_days,
    )  # fmt: skip
    clustering = drtcluster_settings()
    folder = node_settings(data=data).data.absolute()
    if not create:
        _check_data_folder(folder)
    with _quick_imports():
        from roamcast.backtest.history import evaluate_history
        from roamcast.pipeline.query.run import Cluster, pipeline_limits, run_pipeline
        from roamcast.storage.location import open_storage

    limits = replace(pipeline_limits(settings, clustering), evaluate_history=evaluate_history)
    cluster = Cluster(settings.master, settings.host)
    if settings.cache is not None:
        cluster = Cluster(settings.master, settings.host, settings.cache)
    shared = None if settings.storage is None else open_storage(settings.storage)
    warm = settings.keep_warm
    run_pipeline(folder, new=new, cluster=cluster, limits=limits, plan=settings.plan, storage=shared, keep_warm=warm)


def compile() -> None:
    """Compile the kernels of nodes and pipelines now, so that they do not have to wait for it later.

    `make install` does this.

    Example: roamcast compile
    """
    require("node", "pipeline")
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from roamcast.bind import warm_up as bind
    from roamcast.match import warm_up as match

    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        for done in [pool.submit(bind.warm_up), pool.submit(match.warm_up)]:
            done.result()


@contextmanager
def _quick_imports() -> Iterator[None]:
    """Import without garbage collection: it takes a fifth of the time and finds nothing. Later it skips modules too."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _check_data_folder(folder: Path) -> None:
    """Raise InputError if no node has written to the folder: a typo must not create one."""
    if not (folder / "roamcast.json").is_file() and not (folder / "journal").is_dir():
        hint = "`roamcast up` and `roamcast node` create it; check --data, or pass --create"
        raise InputError("not a data folder", where=str(folder), hint=hint)


def _find_scenario(name: str) -> Scenario | None:
    from roamcast.lab.scenarios import SCENARIOS, load_scenario

    if name == "none":
        return None
    if name not in SCENARIOS:
        hint = f"choose one of: none, {', '.join(SCENARIOS)}"
        raise InputError(f"unknown scenario {name!r}", where="--scenario", hint=hint)
    if name == "relief":
        require("lab")
    return load_scenario(name)


async def _run_all(
    server: NodeServer, data: Path, world: Scenario | None, others: Sequence[_OtherNode], *, archive: bool
) -> None:
    """Run until the server is stopped, by a signal or because a part failed; then stop everything."""
    import asyncio
    import sys

    from roamcast.cli.supervise import keep_running
    from roamcast.node.data_folder import DataFolder

    stop = asyncio.Event()
    parts: list[asyncio.Task[None]] = []

    def start_parts(url: str) -> None:
        typer.echo(f"roamcast is up: {url}/  (API: {url}/docs, data: {data}, stop with Ctrl-C)")
        typer.echo("Starting Spark, which takes about 20 seconds; then the first letters arrive.")
        command = [sys.executable, "-m", "roamcast", "pipeline", "--data", str(data)]
        command += ["--archive"] if archive else []
        parts.append(asyncio.create_task(keep_running("pipeline", command, stop)))
        token = DataFolder(data).operator_token()
        parts.extend(asyncio.create_task(_run_joined_node(other, url, token, stop)) for other in others)
        if world:
            parts.append(asyncio.create_task(world.run(url, token, stop, data / "scenarios")))
        for part in parts:
            part.add_done_callback(lambda done: server.stop() if done.exception() else None)

    try:
        await server.serve_node(start_parts)
    finally:
        stop.set()
        await asyncio.gather(*parts, return_exceptions=True)
    for part in parts:
        part.result()


async def _run_joined_node(other: _OtherNode, url: str, token: str, stop: asyncio.Event) -> None:
    """Run a node that joins the one at `url`."""
    import sys

    from roamcast.cli.supervise import keep_running
    from roamcast.client import AsyncClient

    async with AsyncClient(url, token) as operator:
        invitation = await operator.invite(other.domain)
    command = [sys.executable, "-m", "roamcast", "node", *other.options, "--domain", other.domain]
    command += ["--port", str(other.port), "--join", url]
    await keep_running(f"node of {other.domain}", command, stop, {"ROAMCAST_INVITATION": invitation})
