"""`roamcast reproduce …`: the papers' experiments, one subcommand per paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roamcast.cli.figures import JsonFile, write_figures

__all__ = ["reproduce"]

reproduce = typer.Typer(no_args_is_help=True, help="Run the papers' experiments again: figures as PNG and CSV.")

Folder = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the figures go.")]


@reproduce.callback()
def _group() -> None:
    """Keeps `postoffice` a subcommand while it is the only one."""


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
