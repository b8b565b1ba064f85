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
def lcesm(
    out: Folder = Path("artifacts"),
    json: JsonFile = None,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of the paper's experiment.")] = 30,
    paper: Annotated[bool, typer.Option("--paper", help="Only the paper's own figures.")] = False,
) -> None:
    """Sensors awake and matches made, when every reading is matched and when listeners are bound to sensors.

    Example: roamcast reproduce lcesm --json lcesm.json
    """
    from roamcast.experiments.lcesm import Extent, reproduce

    figures = reproduce(out, lambda line: typer.echo(line, err=True), Extent(seeds=seeds), beyond=not paper)
    lps, bound = figures["lps"], figures["lcesm"]
    typer.echo(f"LPS: {lps['sensors']} sensors awake, {lps['matches_per_s']:g} matches/s, {lps['matches']:g} in all")
    typer.echo(
        f"LCESM: {bound['sensors']:.2f} ± {bound['sensors_ci95']:.2f} sensors awake, "
        f"{bound['matches']:g} matches in all, {100 * figures['share']:.2f} % of LPS's"
    )
    for file in figures["files"]:
        typer.echo(file)
    write_figures(figures, json)
