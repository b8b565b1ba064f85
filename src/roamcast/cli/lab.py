"""Commands for measurements and fault simulations: bench and torture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roamcast.cli.batch import replications
from roamcast.cli.options import Json, require
from roamcast.cli.output import OutFile, Progress, counted, print_json, print_line, print_result, table, write_figures
from roamcast.errors import ExitCode, InputError

if TYPE_CHECKING:
    from roamcast.lab.torture.run import TortureSummary
    from roamcast.pipeline.state.partitioning import PartitionerName

__all__ = ["bench", "torture"]

bench = typer.Typer(no_args_is_help=True, help="Run benchmarks. Run nothing else on the machine at the same time.")


@bench.command()
def pipeline(
    rate: Annotated[list[int] | None, typer.Option(min=1, help="Events per second; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Duration of each measurement.")] = 30.0,
    saturate: Annotated[
        bool, typer.Option("--saturate", help="Measure the highest rate instead, without growing lag.")
    ] = False,
    subscriptions: Annotated[
        str, typer.Option(help="With --saturate: numbers of subscriptions, separated by commas.")
    ] = "1000,100000,1000000",
    letters: Annotated[
        str, typer.Option(help="With --saturate: letters that an event makes, separated by commas.")
    ] = "0.1,1,10",
    body: Annotated[str, typer.Option(help="With --saturate: 'json' (500 events) or 'arrow' (5,000).")] = "json",
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Latency from publishing an event to reading its letter, with a real node and pipeline; or the highest rate.

    Example: roamcast bench pipeline --rate 1000 --out pipeline.json

    Example: roamcast bench pipeline --saturate --subscriptions 100000 --letters 0.3 --seconds 120
    """
    require("node", "pipeline", "lab")
    if saturate:
        from roamcast.lab.bench.saturation import SaturationLoad, bench_saturation, body_format

        counts, shares = _parse_sizes(subscriptions), [_parse_letters(each) for each in letters.split(",")]
        format = body_format(body)
        loads = [SaturationLoad(count, share, seconds, body=format) for count in counts for share in shares]
        _report(bench_saturation(loads, print_line), out, as_json=as_json)
        return
    from roamcast.lab.bench.pipeline import bench_pipeline

    _report(bench_pipeline(rate or [1_000], seconds, print_line), out, as_json=as_json)


@bench.command()
def bind(out: OutFile = None, as_json: Json = False) -> None:
    """Moves per second, with all bindings kept up to date, compared with k-d trees.

    Example: roamcast bench bind --out bind.json
    """
    require("node", "lab")
    from roamcast.lab.bench.bind import bench_bind

    _report(bench_bind(print_line), out, as_json=as_json)


@bench.command()
def match(
    sizes: Annotated[str, typer.Option(help="Numbers of subscriptions, separated by commas.")] = (
        "100000,1000000,10000000"
    ),
    plan: Annotated[str, typer.Option(help="'replicated', or 'partitioned' to compare the two.")] = "replicated",
    partitioner: Annotated[
        str | None,
        typer.Option(help="With --plan partitioned: compare these partitioners, separated by commas, or 'all'."),
    ] = None,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Events per second with many subscriptions, compared with Spark SQL and with an empty job.

    Example: roamcast bench match --sizes 100000,1000000 --out match.json

    Example: roamcast bench match --plan partitioned --partitioner all --sizes 1000000
    """
    require("pipeline", "lab")
    from roamcast.lab.bench.match.bench import bench_match, bench_partitioners, bench_shards

    if plan not in ("replicated", "partitioned"):
        raise InputError(f"unknown plan {plan!r}", where="--plan", hint="use replicated or partitioned")
    counts = _parse_sizes(sizes)
    if partitioner is not None:
        if plan != "partitioned":
            raise InputError("only the partitioned plan has a partitioner", hint="add --plan partitioned")
        figures = bench_partitioners(counts, _parse_partitioners(partitioner), print_line)
        _report_table(figures, out, as_json=as_json)
        return
    figures = bench_match(counts, print_line) if plan == "replicated" else bench_shards(counts, (2, 4), print_line)
    _report(figures, out, as_json=as_json)


@bench.command()
def equality(
    events: Annotated[int, typer.Option(min=1_000, help="Number of events.")] = 200_000,
    subscriptions: Annotated[int, typer.Option(min=1_000, help="Number of subscriptions.")] = 100_000,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Compare both plans and all partitioners, with 1, 2 and 4 workers, to brute force. Exit code 1 if any differs.

    Example: roamcast bench equality --out equality.json
    """
    require("pipeline", "lab")
    from roamcast.lab.bench.match.equality import bench_equality

    figures = bench_equality(events, subscriptions, print_line)
    _report(figures, out, as_json=as_json)
    if figures["wrong"]:
        raise typer.Exit(ExitCode.FAILED)


@bench.command()
def journal(
    segments: Annotated[int, typer.Option(min=1, help="Number of segments that come and go.")] = 1_000_000,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Batch time before and after many journal segments have come and gone.

    Example: roamcast bench journal --segments 100000
    """
    require("node", "pipeline", "lab")
    from roamcast.lab.bench.journal import bench_journal

    _report(bench_journal(segments, print_line), out, as_json=as_json)


@bench.command()
def intake(
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration for each format.")] = 10.0,
    connections: Annotated[int, typer.Option(min=1, max=256, help="Connections of the load generator.")] = 8,
    formats: Annotated[
        str, typer.Option(help="Formats of the bodies, separated by commas.")
    ] = "json,ndjson,arrow,parquet",
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Events per second that a node acknowledges, by the format of their bodies, compared with NATS JetStream.

    Example: roamcast bench intake --out intake.json
    """
    require("node", "lab")
    from roamcast.lab.bench.intake.bench import bench_intake
    from roamcast.lab.bench.intake.bodies import FORMATS

    names = [name.strip() for name in formats.split(",")]
    if unknown := [name for name in names if name not in FORMATS]:
        hint = f"use some of {', '.join(FORMATS)}"
        raise InputError(f"unknown format {unknown[0]!r}", where="--formats", hint=hint)
    _report(bench_intake(names, seconds, connections, print_line), out, as_json=as_json)


@bench.command()
def deliver(
    letters: Annotated[int, typer.Option(min=1_000, help="Letters stored at the same time.")] = 1_000_000,
    clients: Annotated[int, typer.Option(min=1, help="Number of client processes.")] = 1,
    moves: Annotated[int, typer.Option(min=1, help="Number of mailbox migrations.")] = 200,
    total_letters: Annotated[
        int, typer.Option(min=100_000, help="Letters sent in total, in rounds of 100000.")
    ] = 10_000_000,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Letters per second into and out of mailboxes, compared with NATS JetStream; migrations; recovery from a crash.

    Example: roamcast bench deliver --out deliver.json
    """
    require("node", "lab")
    from roamcast.lab.bench.deliver.bench import bench_deliver

    _report(bench_deliver(letters, clients, moves, total_letters, print_line), out, as_json=as_json)


@bench.command()
def federation(
    subscriptions: Annotated[int, typer.Option(min=100, help="Number of subscriptions.")] = 100_000,
    rate: Annotated[int, typer.Option(min=1, help="Events per second while the latency is measured.")] = 500,
    seconds: Annotated[float, typer.Option(min=1, help="Duration of that.")] = 20.0,
    events: Annotated[int, typer.Option(min=500, help="Events published as fast as possible.")] = 50_000,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """What events between two domains cost, compared with events inside one. Exit code 1 if letters are wrong.

    Example: roamcast bench federation --out federation.json
    """
    require("node", "pipeline", "lab")
    from roamcast.lab.bench.federation.bench import bench_federation

    figures = bench_federation(subscriptions, rate, seconds, events, print_line)
    _report(figures, out, as_json=as_json)
    if any(row.get(name) for row in figures["rows"] for name in ("missing", "doubled", "unexpected")):
        raise typer.Exit(ExitCode.FAILED)


@bench.command()
def subscriptions(
    count: Annotated[int, typer.Option(min=1_000, help="Subscriptions in bulk.")] = 1_000_000,
    singles: Annotated[int, typer.Option(min=1, help="Subscriptions one by one, over 32 connections.")] = 10_000,
    entities: Annotated[int, typer.Option(min=1, help="Sources, and as many subscribers.")] = 1,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Subscriptions a second over HTTP, in bulk and one by one; latency of moves meanwhile; memory; restart.

    Example: roamcast bench subscriptions --out subscriptions.json
    """
    from roamcast.lab.bench.subscriptions import bench_subscriptions

    _report(bench_subscriptions(count, singles, entities, print_line), out, as_json=as_json)


@bench.command()
def collect(out: OutFile = None, as_json: Json = False) -> None:
    """Cost of a simulated sensor field: one run, 200 runs on Spark, and a field of 10,000 sensors.

    Example: roamcast bench collect --out collect.json
    """
    require("pipeline", "lab")
    from roamcast.lab.bench.collect import bench_collect

    with replications("roamcast bench collect", "local[2]") as replicate:
        _report(bench_collect(print_line, replicate), out, as_json=as_json)


def _parse_letters(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (0 < value <= 1 or (value <= 1_000 and value.is_integer())):
        hint = "use numbers such as 0.1,1,10: fractions up to 1, or whole numbers up to 1000"
        raise InputError(f"{text.strip()!r} is not a number of letters", where="--letters", hint=hint)
    return value


def _parse_sizes(text: str) -> list[int]:
    parts = text.split(",")
    sizes = [int(part) for part in parts if part.strip().isdigit() and int(part) > 0]
    if len(sizes) != len(parts):
        hint = "for example 100000,1000000"
        raise InputError(f"{text!r} is not a list of positive integers", where="--sizes", hint=hint)
    return sizes


def _parse_partitioners(text: str) -> list[PartitionerName]:
    from roamcast.pipeline.state.partitioning import PARTITIONERS

    names = {name.strip() for name in text.split(",")}
    if unknown := names.difference(PARTITIONERS, ["all"]):
        hint = f"use all, or some of {', '.join(PARTITIONERS)}"
        raise InputError(f"unknown partitioner {min(unknown)!r}", where="--partitioner", hint=hint)
    return [name for name in PARTITIONERS if name in names or "all" in names]


def _report_table(figures: Mapping[str, Any], file: Path | None, *, as_json: bool) -> None:
    write_figures(figures, file)
    rows = figures["rows"]
    print_result(
        figures, table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]), as_json=as_json
    )


def _report(figures: Mapping[str, Any], file: Path | None, *, as_json: bool) -> None:
    write_figures(figures, file)
    rows = figures.get("rows", [figures])
    text = "\n".join("  ".join(f"{name} {value}" for name, value in row.items()) for row in rows)
    print_result(figures, text, as_json=as_json)


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
    typer.echo(f"crashed at {points['hit']} of {points['of']} points and {pairs['hit']} of {pairs['of']} pairs")
    failed = f"{len(summary.failed)} of {counted(summary.seeds, 'seed')} failed"
    typer.echo(failed if summary.failed else "no violations")
