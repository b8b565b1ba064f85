"""`roamcast bench`: measurements."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roamcast.cli.batch import replications
from roamcast.cli.options import Json, require
from roamcast.cli.output import OutFile, print_line, print_result, table, write_figures
from roamcast.errors import ExitCode, InputError

if TYPE_CHECKING:
    from roamcast.pipeline.state.partitioning import PartitionerName

__all__ = ["bench"]

bench = typer.Typer(no_args_is_help=True, help="Run benchmarks. Run nothing else on the machine at the same time.")


@bench.command()
def pipeline(
    rate: Annotated[list[int] | None, typer.Option(min=1, help="Events per second; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Duration of each measurement.")] = 30.0,
    saturate: Annotated[
        bool, typer.Option("--saturate", help="Measure the highest rate instead, without growing lag.")
    ] = False,
    subscriptions: Annotated[
        str, typer.Option(help="With --saturate or --workers: numbers of subscriptions, separated by commas.")
    ] = "1000,100000,1000000",
    letters: Annotated[
        str, typer.Option(help="With --saturate or --workers: letters that an event makes, separated by commas.")
    ] = "0.1,1,10",
    body: Annotated[str, typer.Option(help="With --saturate: 'json' (500 events) or 'arrow' (5,000).")] = "json",
    warm_up: Annotated[float, typer.Option(min=0, help="With --saturate: seconds before the measurement.")] = 15.0,
    peers: Annotated[
        str | None,
        typer.Option(help="With --saturate: compare with some of spark-sql,percolator,tile38, or 'all'."),
    ] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Compare the driver's memory instead: more receivers, sources, letters.")
    ] = False,
    one_event: Annotated[
        bool, typer.Option("--one-event", help="Publish one event that all receivers get instead.")
    ] = False,
    receivers: Annotated[int, typer.Option(min=1, help="With --growth or --one-event: receivers.")] = 1_000_000,
    sources: Annotated[int, typer.Option(min=1, help="With --growth: sources.")] = 1_000_000,
    workers: Annotated[
        str | None, typer.Option(help="Compare these numbers of workers of a Spark cluster instead, such as '1,2'.")
    ] = None,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Latency from publishing an event to reading its letter, with a real node and pipeline.

    Or the highest rate (--saturate), the memory of the driver (--growth), one event for many (--one-event), or the
    letters of a cluster (--workers). Exit code 1 if letters or matches are wrong.

    Example: roamcast bench pipeline --rate 1000 --out pipeline.json

    Example: roamcast bench pipeline --saturate --subscriptions 100000 --letters 0.3 --seconds 120 --peers all

    Example: roamcast bench pipeline --one-event --receivers 1000000

    Example: roamcast bench pipeline --workers 1,2 --subscriptions 100000 --letters 0.3,10
    """
    require("node", "pipeline", "lab")
    if sum([saturate, growth, one_event, workers is not None]) > 1:
        raise InputError("several things to measure", hint="use one of --saturate, --growth, --one-event and --workers")
    if peers is not None and not saturate:
        raise InputError("peers are compared at the highest rate only", where="--peers", hint="add --saturate")
    if not (saturate or growth or one_event or workers):
        from roamcast.lab.bench.pipeline import bench_pipeline

        _report(bench_pipeline(rate or [1_000], seconds, print_line), out, as_json=as_json)
        return
    counts = _parse_sizes(subscriptions, "--subscriptions")
    shares = [_parse_letters(each) for each in letters.split(",")]
    if workers:
        from roamcast.lab.bench.saturation.cluster import bench_cluster

        several = list(product(counts, shares))
        figures = bench_cluster(_parse_sizes(workers, "--workers"), several, print_line)
    elif saturate:
        from roamcast.lab.bench.saturation.bench import bench_saturation
        from roamcast.lab.bench.saturation.peers.run import parse_peers
        from roamcast.lab.bench.saturation.world import SaturationLoad, body_format

        format, compared = body_format(body), [] if peers is None else parse_peers(peers)
        loads = [SaturationLoad(count, share, seconds, warm_up, format) for count, share in product(counts, shares)]
        figures = bench_saturation(loads, print_line, compared)
    else:
        from roamcast.lab.bench.saturation.growth import bench_growth, bench_one_event, growth_loads

        if one_event:
            figures = bench_one_event(receivers, print_line)
        else:
            figures = bench_growth(growth_loads(receivers, sources), print_line)
    _report_table(figures, out, as_json=as_json)
    if any(row.get("wrong") for row in figures["rows"]):
        raise typer.Exit(ExitCode.FAILED)


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
    parts: Annotated[
        str, typer.Option(help="What to compare: 'process', 'frames', 'polygons', separated by commas.")
    ] = "process,frames,polygons",
    events: Annotated[int, typer.Option(min=1_000, help="Number of events.")] = 2_000_000,
    subscriptions: Annotated[int, typer.Option(min=1_000, help="Subscriptions with a box and terms.")] = 1_000_000,
    polygons: Annotated[int, typer.Option(min=1_000, help="Subscriptions with a polygon of 20 points.")] = 1_000_000,
    plan: Annotated[
        str | None,
        typer.Option(help="Measure the index alone instead: 'replicated', or 'partitioned' to compare the two."),
    ] = None,
    sizes: Annotated[str, typer.Option(help="With --plan: numbers of subscriptions, separated by commas.")] = (
        "100000,1000000,10000000"
    ),
    partitioner: Annotated[
        str | None,
        typer.Option(help="With --plan partitioned: compare these partitioners, separated by commas, or 'all'."),
    ] = None,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Matching on Spark compared with plain Spark SQL, an empty job, Shapely and SedonaDB. Exit code 1 if any differs.

    Whole processes; data frames with boxes and terms; data frames with polygons. Or the index alone (--plan), with many
    subscriptions.

    Example: roamcast bench match --out match.json

    Example: roamcast bench match --parts polygons --polygons 100000

    Example: roamcast bench match --plan partitioned --partitioner all --sizes 1000000
    """
    require("pipeline", "lab")
    if plan not in (None, "replicated", "partitioned"):
        raise InputError(f"unknown plan {plan!r}", where="--plan", hint="use replicated or partitioned")
    if partitioner is not None and plan != "partitioned":
        raise InputError("only the partitioned plan has a partitioner", hint="add --plan partitioned")
    if plan is None:
        from roamcast.lab.bench.match.comparison import PARTS, bench_comparison

        names = [name.strip() for name in parts.split(",")]
        if unknown := [name for name in names if name not in PARTS]:
            raise InputError(f"unknown part {unknown[0]!r}", where="--parts", hint=f"use some of {', '.join(PARTS)}")
        chosen = [part for part in PARTS if part in names]
        figures = bench_comparison(chosen, events, subscriptions, polygons, print_line)
        _report_table(figures, out, as_json=as_json)
        if figures["wrong"]:
            raise typer.Exit(ExitCode.FAILED)
        return
    from roamcast.lab.bench.match.bench import bench_match, bench_partitioners, bench_shards

    counts = _parse_sizes(sizes)
    if partitioner is not None:
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
def archive(
    events: Annotated[int, typer.Option(min=1, help="Number of events.")] = 10_000_000,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Archive a day of events, compact them, and read some of them; and moves per second with and without tracking.

    Example: roamcast bench archive --events 1000000
    """
    require("node", "lab")
    from roamcast.lab.bench.archive import bench_archive

    _report(bench_archive(events, print_line), out, as_json=as_json)


@bench.command()
def backtest(
    events: Annotated[int, typer.Option(min=10_000, help="Number of events in the day.")] = 10_000_000,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep the archive in this folder, or use the one that is there.", show_default="temporary"),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Also scan by Spark SQL.")] = True,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Backtests of a day of events, the whole command, beside scans of all of them.

    Example: roamcast bench backtest --events 1000000 --no-spark
    """
    require("node", "pipeline", "lab")
    from roamcast.cli.batch import spark_calls
    from roamcast.lab.bench.backtest import bench_backtest, scan_by_spark

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as temporary:
        place = folder or Path(temporary)
        figures = bench_backtest(place, events, print_line)
        if spark:
            with spark_calls("roamcast bench backtest", "local[2]") as call:
                figures |= call(lambda session: scan_by_spark(session, place))
    _report(figures, out, as_json=as_json)


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


def _parse_sizes(text: str, option: str = "--sizes") -> list[int]:
    parts = text.split(",")
    sizes = [int(part) for part in parts if part.strip().isdigit() and int(part) > 0]
    if len(sizes) != len(parts):
        hint = "for example 100000,1000000"
        raise InputError(f"{text!r} is not a list of positive integers", where=option, hint=hint)
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
    head = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[str(row.get(name, "")) for name in head] for row in rows]
    print_result(figures, table(head, cells), as_json=as_json)


def _report(figures: Mapping[str, Any], file: Path | None, *, as_json: bool) -> None:
    write_figures(figures, file)
    rows = figures.get("rows", [figures])
    text = "\n".join("  ".join(f"{name} {value}" for name, value in row.items()) for row in rows)
    print_result(figures, text, as_json=as_json)
