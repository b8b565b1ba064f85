"""`roamcast node`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["node"]


def node(
    data: Annotated[Path | None, typer.Option(help="Folder of the data.", show_default="./roamcast-data")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen at; 0 takes a free one.", show_default="8080")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen at.", show_default="127.0.0.1")] = None,
    domain: Annotated[str | None, typer.Option(help="Name of the domain it serves.", show_default="local")] = None,
    join: Annotated[str | None, typer.Option(help="Address of a node to join, with its domain's others.")] = None,
    invitation: Annotated[
        str | None, typer.Option(help="What `roamcast invite` gave there; better in ROAMCAST_INVITATION.")
    ] = None,
    public_url: Annotated[
        str | None, typer.Option("--public-url", help="Where others reach it, if not where it listens.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM): listen with TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate (PEM).")] = None,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust in other nodes (PEM).")] = None,
    store: Annotated[
        str | None, typer.Option(help="postgresql://… for registry and post office, instead of files.")
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="geographic (degrees) or planar (metres).", show_default="geographic")
    ] = None,
    at: Annotated[
        tuple[float, float] | None, typer.Option(help="Where the node is, for those who look for the nearest.")
    ] = None,
    places: Annotated[Path | None, typer.Option(help="GeoJSON with the places that subscriptions may name.")] = None,
    scene: Annotated[
        bool | None,
        typer.Option("--scene/--no-scene", help="Show positions to everybody on the page.", show_default="no"),
    ] = None,
) -> None:
    """Run one node: registry, intake and post office of a domain, until Ctrl-C.

    Every option can also be set in the environment, such as ROAMCAST_PORT=9000.

    Example: roamcast node --port 8080 --data ./roamcast-data --scene

    Example: roamcast node --domain south --join http://north.example:8080 --invitation CODE
    """
    from roamcast.node.server import serve
    from roamcast.settings import node_settings

    settings = node_settings(
        data=data, port=port, host=host, domain=domain, join=join, invitation=invitation, public_url=public_url,
        tls_cert=tls_cert, tls_key=tls_key, ca=ca, store=store, space=space, at=at, places=places,
        scene=scene,
    )  # fmt: skip
    serve(settings, ready=lambda url: typer.echo(f"node {settings.domain} at {url}  (API: {url}/docs)"))
