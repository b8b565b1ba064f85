"""`roamcast pipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["pipeline"]


def pipeline(
    data: Annotated[Path, typer.Option(help="Data folder, shared with the nodes.", envvar="ROAMCAST_DATA")] = Path(
        "roamcast-data"
    ),
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Put the earlier pipeline aside and begin another that takes over; some events may come twice.",
        ),
    ] = False,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
    host: Annotated[
        str, typer.Option(help="This machine's address as the workers of a cluster reach it.")
    ] = "127.0.0.1",
    cache: Annotated[
        Path | None, typer.Option(help="Folder on each worker of a cluster for files of the state; a temporary one.")
    ] = None,
    plan: Annotated[
        str,
        typer.Option(
            help="replicated: every worker has all of the index; partitioned: each has a share; auto: by its size."
        ),
    ] = "auto",
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            max=64,
            help="Shares of the partitioned plan; 0: as before, at first one for each core that Spark has by then.",
        ),
    ] = 0,
    records: Annotated[int, typer.Option(min=1, help="The most records that one batch takes.")] = 50_000,
    outbox: Annotated[
        int, typer.Option(min=1, help="Batches that may wait for an office before matching waits.")
    ] = 1_000,
    history: Annotated[
        float, typer.Option(min=0, help="Minutes for which ended bindings are kept, for events that come late.")
    ] = 60,
) -> None:
    """Match events with subscriptions: journals in, letters out, on Spark.

    Example: roamcast pipeline --data ./roamcast-data
    """
    from roamcast.errors import InputError
    from roamcast.pipeline.query.run import Cluster, run_pipeline
    from roamcast.pipeline.query.stream import Limits
    from roamcast.pipeline.state.shards import PLANS

    chosen = next((known for known in PLANS if known == plan), None)
    if chosen is None:
        raise InputError(f"no plan {plan!r}", where="--plan", hint=f"one of {', '.join(PLANS)}")
    limits = Limits(records=records, outbox=outbox, history=round(history * 60e6), workers=workers)
    cluster = Cluster(master, host) if cache is None else Cluster(master, host, cache)
    run_pipeline(data.absolute(), new=new, cluster=cluster, limits=limits, plan=chosen)
