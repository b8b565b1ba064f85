"""`roamcast torture …`: fault simulations, one subcommand per stage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roamcast.cli.figures import JsonFile, write_figures
from roamcast.cli.progress import Progress

if TYPE_CHECKING:
    from roamcast.lab.torture.run import SeedResult, TortureSummary
    from roamcast.lab.torture.variants import Variant

__all__ = ["torture"]

torture = typer.Typer(no_args_is_help=True, help="Simulate everything that can go wrong, and check what must hold.")


@torture.callback()
def _group() -> None:
    """Keeps `deliver` a subcommand while it is the only one."""


@torture.command()
def deliver(
    seeds: Annotated[
        str, typer.Option(metavar="A..B", help="Which worlds to go through. One alone is told if it fails.")
    ] = "1..200",
    variant: Annotated[str | None, typer.Option(metavar="NAME", help="A protocol that is broken on purpose.")] = None,
    list_variants: Annotated[bool, typer.Option("--list-variants", help="List the broken protocols and stop.")] = False,
    json: JsonFile = None,
) -> None:
    """Post offices and migrating receivers over a bad network, with crashes, full disks and clocks that jump.

    Exit code 1 if anything was lost, doubled, reordered, invented or left behind. A seed always gives the same world.

    Example: roamcast torture deliver --seeds 1..2000
    """
    from roamcast.lab.torture.run import TortureSummary, find_variant, parse_seeds, run_seeds
    from roamcast.lab.torture.variants import VARIANTS

    if list_variants:
        for name, broken in VARIANTS.items():
            typer.echo(f"{name:26}{broken.description}")
        return
    chosen, wanted = find_variant(variant), parse_seeds(seeds)
    summary = TortureSummary(chosen)
    with Progress(f"{len(wanted)} seeds") as progress:
        progress.measure = lambda: (summary.seeds, len(wanted))
        for outcome in run_seeds(chosen, wanted, processes=1 if len(wanted) == 1 else None):
            summary.add(outcome)
    _report(summary, json)
    if summary.failed and len(wanted) == 1:
        _tell(chosen, summary.failed[0])
    if summary.failed:
        raise typer.Exit(1)


def _report(summary: TortureSummary, file: Path | None) -> None:
    figures = summary.to_json()
    chosen = "" if summary.variant.name == "correct" else f" --variant {summary.variant.name}"
    for outcome in summary.failed:
        typer.echo(f"seed {outcome.seed}: {outcome.violations[0]}")
        typer.echo(f"  the whole story: roamcast torture deliver --seeds {outcome.seed}{chosen}")
    counted = ("letters", "expired", "migrations", "crashes", "messages")
    typer.echo("  ".join(f"{name} {figures[name]}" for name in ("variant", "seeds", *counted)))
    least = figures["least_in_a_seed"]
    typer.echo("in each seed at least " + ", ".join(f"{least[name]} {name}" for name in least))
    points, pairs = figures["crash_points"], figures["crash_pairs"]
    typer.echo(f"crashed at {points['hit']} of {points['of']} points, at {pairs['hit']} of {pairs['of']} pairs of them")
    typer.echo(f"{len(summary.failed)} of {summary.seeds} seeds failed" if summary.failed else "no violation")
    write_figures(figures, file)


def _tell(variant: Variant, outcome: SeedResult) -> None:
    from roamcast.lab.torture.run import replay

    for line in replay(variant, outcome.seed):
        typer.echo(line)
