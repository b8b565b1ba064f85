"""`roamcast reproduce …`: the papers' experiments, one subcommand per paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

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
    from roamcast.lab.experiments.postoffice import reproduce

    figures = reproduce(out, _say)
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
    from roamcast.lab.experiments.lcesm import LcesmExtent, reproduce

    figures = reproduce(out, _say, LcesmExtent(seeds=seeds), beyond=not paper)
    lps, bound = figures["lps"], figures["lcesm"]
    typer.echo(f"LPS: {lps['sensors']} sensors awake, {lps['matches_per_s']:g} matches/s, {lps['matches']:g} in all")
    typer.echo(
        f"LCESM: {bound['sensors']:.2f} ± {bound['sensors_ci95']:.2f} sensors awake, "
        f"{bound['matches']:g} matches in all, {100 * figures['share']:.2f} % of LPS's"
    )
    for file in figures["files"]:
        typer.echo(file)
    write_figures(figures, json)


@reproduce.command()
def cet(
    out: Folder = Path("artifacts"),
    json: JsonFile = None,
    runs: Annotated[int, typer.Option(min=2, help="Independent runs for each point.")] = 100,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
) -> None:
    """Events out of disconnected sensor fields: tables 2 and 3 and figures 7 to 10, on Spark, the paper's beside ours.

    What is finished is kept in the folder: the same command goes on where it was stopped.

    Example: roamcast reproduce cet --runs 100 --json cet.json
    """
    from roamcast.cli.progress import Progress
    from roamcast.cli.spark import replications
    from roamcast.lab.experiments.cet import reproduce

    done = 0, 0

    def note(*counts: int) -> None:
        nonlocal done
        done = counts[0], counts[1]

    with Progress("starting Spark") as progress, replications("roamcast reproduce cet", master) as replicate:
        progress.measure = lambda: done
        progress.say("running replications")
        figures = reproduce(out, lambda jobs: replicate(jobs, out, note), _say, runs=runs)
    _print_cet(figures)
    write_figures(figures, json)


def _print_cet(figures: Mapping[str, Any]) -> None:
    from roamcast.cli.tables import table

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.4g}"

    def within(mean: float, half: float) -> str:
        return f"{mean:.4g} ± {half:.2g}"

    def lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        typer.echo(table(head, rows) + "\n")

    rows = [[r["protocol"], r["what"], number(r["paper"]), within(r["ours"], r["half"])] for r in figures["tables"]]
    lines(["", "", "paper", "ours"], rows)
    verdict = {True: "reproduced", False: "NOT reproduced"}
    claims = [
        [v["figure"], v["of"], v["what"], v["paper"], v["ours"], verdict[v["reproduced"]]] for v in figures["verdicts"]
    ]
    lines(["figure", "of", "what", "paper", "ours", ""], claims)
    for row in figures["tables"]:
        if row["why"]:
            typer.echo(f"tables, {row['protocol']} {row['what']}: {row['why']}")
    for v in figures["verdicts"]:
        if v["why"]:
            typer.echo(f"figure {v['figure']}, {v['of']} {v['what']}: {v['why']}")
    typer.echo()
    names = [name for name in figures["interpretations"][0] if name != "interpretation" and not name.endswith("_half")]
    interpretations = [
        [row["interpretation"], *(within(row[name], row[f"{name}_half"]) for name in names)]
        for row in figures["interpretations"]
    ]
    lines(["interpretation", *names], interpretations)
    for file in figures["files"]:
        typer.echo(file)


def _say(line: str) -> None:
    typer.echo(line, err=True)


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
    from roamcast.lab.experiments.drtcluster import reproduce

    figures = reproduce(out, _say, seeds=seeds, events=events)
    for kind in ("partitioners", "drift"):
        for name, row in figures[kind].items():
            typer.echo(f"{kind}  {name}  " + "  ".join(f"{what} {value}" for what, value in row.items()))
    for what, verdict in figures["verdicts"].items():
        typer.echo(f"{what}: {verdict}")
    for file in figures["files"]:
        typer.echo(file)
    write_figures(figures, json)
