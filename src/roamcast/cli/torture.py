"""`roamcast torture`: fault simulations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roamcast.cli.options import Json, require
from roamcast.cli.output import OutFile, Progress, counted, print_json, print_result, write_figures
from roamcast.errors import ExitCode

if TYPE_CHECKING:
    from roamcast.lab.torture.run import TortureSummary

__all__ = ["torture"]

torture = typer.Typer(no_args_is_help=True, help="Simulate faults, and check that nothing is lost or duplicated.")

Seeds = Annotated[str, typer.Option(metavar="A..B", help="Seeds to run. If a single seed fails, its trace is printed.")]
VariantName = Annotated[str | None, typer.Option(metavar="NAME", help="A deliberately broken protocol.")]
ListVariants = Annotated[bool, typer.Option("--list-variants", help="List the broken protocols and exit.")]


@torture.command("deliver")
def torture_deliver(
    seeds: Seeds = "1..200",
    variant: VariantName = None,
    list_variants: ListVariants = False,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Simulate post offices and migrating subscribers on a faulty network, with crashes, full disks and clock jumps.

    Exit code 1 if a letter was lost, duplicated, reordered, invented or left behind. A seed always gives the same run.

    Example: roamcast torture deliver --seeds 1..2000
    """
    _torture("deliver", seeds, variant, out, list_variants=list_variants, as_json=as_json)


@torture.command("federate")
def torture_federate(
    seeds: Seeds = "1..200",
    variant: VariantName = None,
    list_variants: ListVariants = False,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Simulate hosts with a data folder each on a faulty network: wants, forwarded events, bindings and visitors.

    Nodes and pipelines crash, disks fill up. Exit code 1 if an event did not become a letter although the subscription
    was active, became two, or came out of order. A seed always gives the same run.

    Example: roamcast torture federate --seeds 1..2000
    """
    _torture("federate", seeds, variant, out, list_variants=list_variants, as_json=as_json)


@torture.command("field")
def torture_field(
    seeds: Seeds = "1..200",
    variant: VariantName = None,
    list_variants: ListVariants = False,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Simulate field nodes, mules and a base on a faulty radio, with clocks that differ, crashes and full queues.

    Exit code 1 if an event was forged, or lost although no rule dropped it, or a drop was not counted. A seed always
    gives the same run.

    Example: roamcast torture field --seeds 1..2000
    """
    _torture("field", seeds, variant, out, list_variants=list_variants, as_json=as_json)


@torture.command("kernels")
def torture_kernels(seeds: Seeds = "1..200", out: OutFile = None, as_json: Json = False) -> None:
    """Compare the compiled simulation of random sensor fields with the code that field nodes and mules run.

    Exit code 1 if a transfer, a count or an energy differs in any bit.

    Example: roamcast torture kernels --seeds 1..1500
    """
    _torture("kernels", seeds, None, out, list_variants=False, as_json=as_json)


def _torture(
    name: str, seeds: str, variant: str | None, out: Path | None, *, list_variants: bool, as_json: bool
) -> None:
    require("node")
    from roamcast.lab.torture.kinds import TORTURES
    from roamcast.lab.torture.run import TortureSummary, parse_seeds, replay, run_seeds

    torture = TORTURES[name]
    if list_variants:
        text = "\n".join(f"{name:26}{broken.description}" for name, broken in torture.variants.items())
        print_result({name: broken.description for name, broken in torture.variants.items()}, text, as_json=as_json)
        return
    chosen, numbers = torture.variant(variant), parse_seeds(seeds)
    summary = TortureSummary(torture, chosen)
    with Progress(counted(len(numbers), "seed")) as progress:
        progress.measure = lambda: (summary.seeds, len(numbers))
        for outcome in run_seeds(torture, chosen, numbers, processes=1 if len(numbers) == 1 else None):
            summary.add(outcome)
    write_figures(summary.to_json(), out)
    if as_json:
        print_json(summary.to_json())
    else:
        _report_torture(summary)
        if summary.failed and len(numbers) == 1:
            for line in replay(torture, chosen, numbers[0]):
                typer.echo(line)
    if summary.failed:
        raise typer.Exit(ExitCode.FAILED)


def _report_torture(summary: TortureSummary) -> None:
    figures = summary.to_json()
    option = "" if summary.variant.name == "correct" else f" --variant {summary.variant.name}"
    for outcome in summary.failed:
        typer.echo(f"seed {outcome.seed}: {outcome.violations[0]}")
        typer.echo(f"  full trace: roamcast torture {summary.torture.name} --seeds {outcome.seed}{option}")
    typer.echo("  ".join(f"{name} {figures[name]}" for name in ("variant", "seeds", *summary.totals)))
    least = figures["least_in_a_seed"]
    typer.echo("minimum per seed: " + ", ".join(f"{least[name]} {name}" for name in least))
    points, pairs = figures["crash_points"], figures["crash_pairs"]
    if points["of"]:
        typer.echo(f"crashed at {points['hit']} of {points['of']} points and {pairs['hit']} of {pairs['of']} pairs")
    failed = f"{len(summary.failed)} of {counted(summary.seeds, 'seed')} failed"
    typer.echo(failed if summary.failed else "no violations")
