"""`roamcast bench …`: measurements, one subcommand per stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from roamcast.cli.figures import JsonFile, write_figures

__all__ = ["bench"]

bench = typer.Typer(no_args_is_help=True, help="Measure, on this machine, with nothing else running.")


@bench.command()
def pipeline(
    json: JsonFile = None,
    rate: Annotated[list[int] | None, typer.Option(min=1, help="Events a second; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long each rate is measured.")] = 30.0,
) -> None:
    """Latency from publishing an event to reading its letter, through a real node and pipeline.

    Example: roamcast bench pipeline --rate 1000 --json pipeline.json
    """
    from roamcast.lab.bench.pipeline import bench_pipeline

    _report(bench_pipeline(rate or [1_000], seconds, _say), json)


@bench.command()
def bind(json: JsonFile = None) -> None:
    """Moves a second that bindings follow, beside k-d trees that do the same.

    Example: roamcast bench bind --json bind.json
    """
    from roamcast.lab.bench.bind import bench_bind

    _report(bench_bind(_say), json)


@bench.command()
def match(
    json: JsonFile = None,
    sizes: Annotated[str, typer.Option(help="Numbers of subscriptions, separated by commas.")] = (
        "100000,1000000,10000000"
    ),
    plan: Annotated[str, typer.Option(help="replicated, or partitioned beside it.")] = "replicated",
) -> None:
    """Events a second against very many subscriptions, beside plain Spark SQL and doing nothing at all.

    Example: roamcast bench match --sizes 100000,1000000 --json match.json
    """
    from roamcast.errors import InputError
    from roamcast.lab.bench.match import bench_match, bench_shards

    if plan not in ("replicated", "partitioned"):
        raise InputError(f"no plan {plan!r}", where="--plan", hint="replicated or partitioned")
    numbers = _numbers(sizes)
    _report(bench_match(numbers, _say) if plan == "replicated" else bench_shards(numbers, (2, 4), _say), json)


@bench.command()
def equality(
    json: JsonFile = None,
    events: Annotated[int, typer.Option(min=1_000)] = 200_000,
    subscriptions: Annotated[int, typer.Option(min=1_000)] = 100_000,
) -> None:
    """Both plans and all partitioners, for 1, 2 and 4 workers, beside brute force. Exits with 1 if any is wrong.

    Example: roamcast bench equality --json equality.json
    """
    from roamcast.lab.bench.match_equality import bench_equality

    figures = bench_equality(events, subscriptions, _say)
    _report(figures, json)
    if figures["wrong"]:
        raise typer.Exit(1)


@bench.command()
def journal(
    json: JsonFile = None,
    segments: Annotated[int, typer.Option(min=1, help="How many segments come and go.")] = 1_000_000,
) -> None:
    """Batch time before and after very many journal segments have come and gone.

    Example: roamcast bench journal --segments 100000
    """
    from roamcast.lab.bench.journal import bench_journal

    _report(bench_journal(segments, _say), json)


@bench.command()
def deliver(
    json: JsonFile = None,
    letters: Annotated[int, typer.Option(min=1_000, help="Letters stored at once.")] = 1_000_000,
    clients: Annotated[int, typer.Option(min=1, help="Processes that send and read.")] = 1,
    moves: Annotated[int, typer.Option(min=1, help="How often a mailbox moves.")] = 200,
    ever: Annotated[int, typer.Option(min=100_000, help="Letters sent in all, in rounds of 100000.")] = 10_000_000,
) -> None:
    """Letters a second into mailboxes and out, beside NATS JetStream; migrations; a crash; letters without number.

    Example: roamcast bench deliver --json deliver.json
    """
    from roamcast.lab.bench.deliver import bench_deliver

    _report(bench_deliver(letters, clients, moves, ever, _say), json)


@bench.command()
def collect(json: JsonFile = None) -> None:
    """What a simulated sensor field costs: one run, two hundred through Spark, and a field of 10,000 sensors.

    Example: roamcast bench collect --json collect.json
    """
    from roamcast.cli.spark import replications
    from roamcast.lab.bench.collect import bench_collect

    with replications("roamcast bench collect", "local[2]") as replicate:
        _report(bench_collect(_say, replicate), json)


def _numbers(text: str) -> list[int]:
    from roamcast.errors import InputError

    numbers = [int(part) for part in text.split(",") if part.strip().isdigit() and int(part) > 0]
    if len(numbers) != len(text.split(",")):
        raise InputError(f"{text!r} is no list of numbers", where="--sizes", hint="such as 100000,1000000")
    return numbers


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _report(figures: Mapping[str, Any], file: Path | None) -> None:
    rows = figures.get("rows", [figures])
    for row in rows:
        typer.echo("  ".join(f"{name} {value}" for name, value in row.items()))
    write_figures(figures, file)
