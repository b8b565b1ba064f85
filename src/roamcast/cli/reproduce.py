"""`roamcast reproduce …`: the papers' experiments, one subcommand per paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roamcast.cli.figures import JsonFile, write_figures

__all__ = ["reproduce"]

reproduce = typer.Typer(no_args_is_help=True, help="Run the papers' experiments again: figures as PNG and CSV.")

Folder = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the figures go.")]


@reproduce.command()
def postoffice(out: Folder = Path("artifacts"), json: JsonFile = None) -> None:
    """What letters and migrations cost: the paper's formulas, and the same counted in the running protocol.

    Example: roamcast reproduce postoffice --json postoffice.json
    """
    from roamcast.experiments.postoffice import reproduce

    figures = reproduce(out, lambda line: typer.echo(line, err=True))
    for what, deviation in figures["largest_deviation"].items():
        typer.echo(f"{what}: counted and formula differ by at most {100 * deviation:.2f} %")
    for file in figures["files"]:
        typer.echo(file)
    write_figures(figures, json)


@reproduce.command()
def drtcluster(
    out: Folder = Path("artifacts"),
    json: JsonFile = None,
    seeds: Annotated[int, typer.Option(min=1, help="How often, each time with other events.")] = 10,
    events: Annotated[int, typer.Option(min=100, help="Places of the world that are events.")] = 100_000,
) -> None:
    """Categories, merging, balancing and throughput of DRt-Cluster, and other ways to divide subscriptions.

    Example: roamcast reproduce drtcluster --json drtcluster.json
    """
    from roamcast.experiments.drtcluster import reproduce

    figures = reproduce(out, lambda line: typer.echo(line, err=True), seeds=seeds, events=events)
    for kind in ("partitioners", "drift"):
        for name, row in figures[kind].items():
            typer.echo(f"{kind}  {name}  " + "  ".join(f"{what} {value}" for what, value in row.items()))
    for what, verdict in figures["verdicts"].items():
        typer.echo(f"{what}: {verdict}")
    for file in figures["files"]:
        typer.echo(file)
    write_figures(figures, json)
