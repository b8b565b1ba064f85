"""Commands for simulations and for the papers' experiments: simulate and reproduce."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from roamcast.cli.batch import Master, replications, spark_calls
from roamcast.cli.options import Json, require
from roamcast.cli.output import Progress, print_json, print_line, print_table, write_figures

__all__ = ["reproduce", "simulate"]

OutFolder = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for figures (PNG, CSV, JSON).")]


def simulate(
    field: Annotated[Path, typer.Argument(help="A field in TOML; see examples/fields.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write reports, traces and figures.json to this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate a sensor field with each protocol that its file names, and report what was delivered.

    Example: roamcast simulate examples/fields/paper.toml --out results
    """
    require("pipeline", "lab")
    from dataclasses import asdict

    from roamcast.collect.simulation.contacts import cell_entries, find_contacts
    from roamcast.collect.simulation.reports import message_stats, write_reports
    from roamcast.collect.simulation.results import run_figures
    from roamcast.collect.simulation.scenario import load_scenario, mule_names, sensor_names
    from roamcast.collect.simulation.simulate import simulate as run_simulation
    from roamcast.collect.simulation.traces import contact_lines, movement_lines, write_lines

    scenario = load_scenario(field)
    world, results = scenario.world, {}
    done = 0.0

    def set_progress(fraction: float) -> None:
        nonlocal done
        done = fraction

    with Progress("compiling") as progress:
        progress.measure = lambda: (round(100 * done), 100)
        for protocol in scenario.protocols:
            progress.say(f"simulating {protocol.name}")
            results[protocol.name] = run_simulation(
                world,
                protocol,
                scenario.radio,
                contacts=scenario.contacts,
                until_death=scenario.until_death,
                progress=set_progress,
            )
    figures = {name: asdict(run_figures(result, scenario.radio.initial_j)) for name, result in results.items()}
    files = []
    if out is not None:
        files = write_reports(out, world, results)
        mules, sensors = mule_names(world.field.mules), sensor_names(world.field.sensors)
        contacts = scenario.contacts or find_contacts(world, cell_entries(world.field, world.legs))
        write_lines(out / "contacts.txt", contact_lines(contacts, mules, sensors))
        if scenario.contacts is None:
            size = {"side": world.field.side, "duration_s": world.field.duration_s}
            write_lines(out / "movement.txt", movement_lines(world.legs, mules, **size, is_csv=False))
            write_lines(out / "movement.csv", movement_lines(world.legs, mules, **size, is_csv=True))
        write_figures(figures, out / "figures.json")
    if as_json:
        print_json(figures)
        return
    stats = {name: message_stats(result) for name, result in results.items()}
    names = list(next(iter(stats.values())))
    print_table(["", *stats], [[name, *(f"{stats[protocol][name]:.6g}" for protocol in stats)] for name in names])
    for file in files:
        typer.echo(file)


reproduce = typer.Typer(no_args_is_help=True, help="Repeat the experiments of the papers. Writes figures to --out.")


@reproduce.command()
def postoffice(out: OutFolder = Path("artifacts"), as_json: Json = False) -> None:
    """Cost of letters and migrations: the paper's formulas, and the same counted in the running protocol.

    Example: roamcast reproduce postoffice --out artifacts
    """
    require("node", "lab")
    from roamcast.lab.experiments.postoffice.reproduce import reproduce

    figures = reproduce(out, print_line)
    if _finish("postoffice", figures, out, as_json=as_json):
        return
    for what, deviation in figures["largest_deviation"].items():
        typer.echo(f"{what}: count and formula differ by at most {100 * deviation:.2f} %")
    _print_files(figures)


@reproduce.command()
def lcesm(
    out: OutFolder = Path("artifacts"),
    seeds: Annotated[int, typer.Option(min=2, help="Runs of the paper's experiment.")] = 30,
    paper: Annotated[bool, typer.Option("--paper", help="Only the figures of the paper.")] = False,
    as_json: Json = False,
) -> None:
    """Active sensors and matches: when every reading is matched, and when listeners are bound to sensors.

    Example: roamcast reproduce lcesm --out artifacts
    """
    require("node", "lab")
    from roamcast.lab.experiments.lcesm.reproduce import LcesmExtent, reproduce

    figures = reproduce(out, print_line, LcesmExtent(seeds=seeds), beyond=not paper)
    if _finish("lcesm", figures, out, as_json=as_json):
        return
    lps, bound = figures["lps"], figures["lcesm"]
    typer.echo(f"LPS: {lps['sensors']} active sensors, {lps['matches_per_s']:g} matches/s, {lps['matches']:g} in total")
    typer.echo(
        f"LCESM: {bound['sensors']:.2f} ± {bound['sensors_ci95']:.2f} active sensors, "
        f"{bound['matches']:g} matches in total, {100 * figures['share']:.2f} % of LPS"
    )
    _print_files(figures)


@reproduce.command()
def cet(
    out: OutFolder = Path("artifacts"),
    runs: Annotated[int, typer.Option(min=2, help="Independent runs for each point.")] = 100,
    master: Master = "local[2]",
    as_json: Json = False,
) -> None:
    """Events from disconnected sensor fields, on Spark: tables 2 and 3 and figures 7 to 10, compared with the paper.

    Finished runs are stored in the folder: the same command continues where it was stopped.

    Example: roamcast reproduce cet --runs 100 --out artifacts
    """
    require("pipeline", "lab")
    from roamcast.lab.experiments.cet.reproduce import reproduce

    done = 0, 0

    def note(*counts: int) -> None:
        nonlocal done
        done = counts[0], counts[1]

    with Progress("starting Spark") as progress, replications("roamcast reproduce cet", master) as replicate:
        progress.measure = lambda: done
        progress.say("running replications")
        figures = reproduce(out, lambda jobs: replicate(jobs, out, note), print_line, runs=runs)
    if not _finish("cet", figures, out, as_json=as_json):
        _print_cet(figures)


@reproduce.command()
def drtcluster(
    out: OutFolder = Path("artifacts"),
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of repetitions with different events. The first five are timed.")
    ] = 10,
    events: Annotated[int, typer.Option(min=100, help="Number of events.")] = 100_000,
    counted: Annotated[bool, typer.Option("--counted", help="Only count work; time nothing on Spark.")] = False,
    master: Master = "local[2]",
    as_json: Json = False,
) -> None:
    """Categories, merging, balancing and throughput of DRt-Cluster, compared with other partitioners.

    Example: roamcast reproduce drtcluster --out artifacts
    """
    require("pipeline", "lab")
    from roamcast.lab.experiments.drtcluster.reproduce import reproduce

    if counted:
        figures = reproduce(out, print_line, seeds=seeds, events=events)
    else:
        with spark_calls("roamcast reproduce drtcluster", master) as on_spark:
            figures = reproduce(out, print_line, on_spark, seeds=seeds, events=events)
    if not _finish("drtcluster", figures, out, as_json=as_json):
        _print_drtcluster(figures)


def _print_drtcluster(figures: Mapping[str, Any]) -> None:
    for kind in ("partitioners", "drift"):
        for name, row in figures[kind].items():
            typer.echo(f"{kind}  {name}  " + "  ".join(f"{what} {value}" for what, value in row.items()))
        typer.echo(f"curve, {kind}: {figures['curve'][kind]}")
    for kind in ("throughput", "balancing"):
        if rows := figures[kind]:
            typer.echo()
            print_table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])
    typer.echo()
    names = ("figure", "measured", "paper", "ours", "verdict")
    print_table(names, [[str(verdict[name]) for name in names] for verdict in figures["verdicts"]])
    _print_files(figures)


def _cell(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _finish(name: str, figures: Mapping[str, Any], folder: Path, *, as_json: bool) -> bool:
    """Write the figures to FOLDER/NAME.json. With `as_json` print them; whether they were printed."""
    write_figures(figures, folder / f"{name}.json")
    if as_json:
        print_json(figures)
    return as_json


def _print_files(figures: Mapping[str, Any]) -> None:
    for file in figures["files"]:
        typer.echo(file)


def _print_cet(figures: Mapping[str, Any]) -> None:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.4g}"

    def interval(mean: float, half: float) -> str:
        return f"{mean:.4g} ± {half:.2g}"

    rows = [[r["protocol"], r["what"], number(r["paper"]), interval(r["ours"], r["half"])] for r in figures["tables"]]
    print_table(["", "", "paper", "ours"], rows)
    typer.echo()
    verdict = {True: "reproduced", False: "NOT reproduced"}
    claims = [
        [v["figure"], v["of"], v["what"], v["paper"], v["ours"], verdict[v["reproduced"]]] for v in figures["verdicts"]
    ]
    print_table(["figure", "of", "what", "paper", "ours", ""], claims)
    typer.echo()
    for row in figures["tables"]:
        if row["why"]:
            typer.echo(f"tables, {row['protocol']} {row['what']}: {row['why']}")
    for v in figures["verdicts"]:
        if v["why"]:
            typer.echo(f"figure {v['figure']}, {v['of']} {v['what']}: {v['why']}")
    typer.echo()
    names = [name for name in figures["interpretations"][0] if name != "interpretation" and not name.endswith("_half")]
    interpretations = [
        [row["interpretation"], *(interval(row[name], row[f"{name}_half"]) for name in names)]
        for row in figures["interpretations"]
    ]
    print_table(["interpretation", *names], interpretations)
    typer.echo()
    _print_files(figures)
