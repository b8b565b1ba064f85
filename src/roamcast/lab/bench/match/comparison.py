"""`roamcast bench match`: matching on Spark beside what a Spark user has without it.

Each part compares all plans on the same files, and every result with ours. Events have terms as strings, and come from
Parquet files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.bench.match.frames import measure_frames
from roamcast.lab.bench.match.pairs import EVENT, SUBSCRIPTION
from roamcast.lab.bench.match.polygons import measure_polygons, write_polygons
from roamcast.lab.bench.match.process import SQL_OPTIONS, measure_process
from roamcast.match.warm_up import warm_up

__all__ = ["PARTS", "Part", "bench_comparison", "with_ratios", "write_inputs"]

Part: TypeAlias = Literal["process", "frames", "polygons"]
Say: TypeAlias = Callable[[str], None]

PARTS: Final[tuple[Part, ...]] = get_args(Part)

_FILES: Final = 8


def bench_comparison(parts: Sequence[Part], events: int, subscriptions: int, polygons: int, say: Say) -> dict[str, Any]:
    """Return a row for each part and plan, with the ratio of ours to it. `wrong` must be 0."""
    from roamcast.pipeline.query.session import session

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as name:
        folder = Path(name)
        say(f"generating {events:,} events, {subscriptions:,} boxes and {polygons:,} polygons")
        data = MatchData(events)
        write_inputs(data, subscriptions, folder)
        if "polygons" in parts:
            write_polygons(data, polygons, folder / "polygons")
        warm_up()  # kernels are compiled once for an installation
        rows: list[dict[str, Any]] = []
        if "process" in parts:
            rows += with_ratios("process", measure_process(folder, subscriptions, say))
        if set(parts) - {"process"}:
            spark = session("roamcast-bench", options=SQL_OPTIONS, log=folder / "spark.log")
            try:
                if "frames" in parts:
                    rows += with_ratios("frames", measure_frames(spark, folder, events, subscriptions, say))
                if "polygons" in parts:
                    rows += with_ratios("polygons", measure_polygons(spark, folder, events, polygons, say))
            finally:
                spark.stop()
    return {"rows": rows, "wrong": sum(row.get("wrong", 0) for row in rows)}


def write_inputs(data: MatchData, subscriptions: int, folder: Path) -> None:
    """Write events and boxes as Parquet, in several files each."""
    events = len(data.x)
    boxes = data.subscriptions(subscriptions)
    for name, count in (("events", events), ("subscriptions", subscriptions)):
        (folder / name).mkdir()
        for number, (first, end) in enumerate(pairwise(np.linspace(0, count, _FILES + 1).astype(int).tolist())):
            if name == "events":
                table = pa.Table.from_batches([data.events(first, end)]).rename_columns([EVENT, "x", "y", "terms"])
            else:
                columns = {side: column[first:end] for side, column in boxes._asdict().items()}
                table = pa.table({SUBSCRIPTION: np.arange(first, end), **columns})
            pq.write_table(table, folder / name / f"{number}.parquet")


def with_ratios(part: Part, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add how many times as fast ours, the first row, is."""
    ours = rows[0]
    return [
        {
            "part": part,
            **row,
            "times_as_fast": round(
                row["seconds"] / ours["seconds"] if "seconds" in row else ours["events_per_s"] / row["events_per_s"], 2
            ),
        }
        for row in rows
    ]
