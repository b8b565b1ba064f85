"""Reports with the column names of the ONE simulator, as CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.collect.simulation.field import FieldWorld
from roamcast.collect.simulation.results import SimulationResult
from roamcast.durable import make_folder, storage_errors, write_atomic

__all__ = ["deliveries", "message_stats", "write_reports"]


def message_stats(result: SimulationResult) -> dict[str, float]:
    """Return the figures of ONE's MessageStatsReport.

    An event can have several receivers: `created` counts events, `delivered` and `delivery_prob` count pairs of an
    event and a mule that wants it. `relayed` counts all transfers, `dropped` own or kept copies that found the queue
    full or became too old, `removed` copies with more than alpha successes, and relayed ones that expired or whose
    contact ended.
    """
    counts, delivered = result.counts, len(result.delivered)
    return {
        "sim_time": result.ended_s,
        "created": counts["created"],
        "relayed": counts["hops"],
        "dropped": counts["full"] + counts["expired"],
        "removed": counts["spent"] + counts["stranded"],
        "delivered": delivered,
        "delivery_prob": delivered / result.wanted if result.wanted else 0.0,
        "overhead_ratio": (counts["hops"] - delivered) / delivered if delivered else 0.0,
        "latency_avg": float(result.delay_s.mean()) if delivered else 0.0,
        "latency_med": float(np.median(result.delay_s)) if delivered else 0.0,
        "hopcount_avg": float(result.delivered[:, 3].mean()) if delivered else 0.0,
        "hopcount_med": float(np.median(result.delivered[:, 3])) if delivered else 0.0,
    }


def deliveries(world: FieldWorld, result: SimulationResult) -> pa.Table:
    """Return a row for each first receipt by a mule that wants the event, in the order of receipt."""
    event = result.delivered[:, 2]
    created = world.events.time[event]
    return pa.table(
        {
            "event": event,
            "source": world.events.sensor[event],
            "mule": result.delivered[:, 1],
            "created": created,
            "received": created + result.delay_s,
            "latency": result.delay_s,
            "hopcount": result.delivered[:, 3],
        }
    )


def write_reports(folder: Path, world: FieldWorld, results: Mapping[str, SimulationResult]) -> list[Path]:
    """Write `message_stats`, with a row for each protocol, and the `deliveries` of each, as CSV and Parquet."""
    make_folder(folder)
    stats = pa.Table.from_pylist([{"protocol": name, **message_stats(result)} for name, result in results.items()])
    tables = {"message_stats": stats}
    tables |= {f"deliveries_{name.lower()}": deliveries(world, result) for name, result in results.items()}
    return [file for name, table in tables.items() for file in _write(folder / name, table)]


def _write(path: Path, table: pa.Table) -> Sequence[Path]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    as_csv, as_parquet = path.with_suffix(".csv"), path.with_suffix(".parquet")
    write_atomic(as_csv, text.getvalue().encode(), durable=False)
    packed = io.BytesIO()
    pq.write_table(table, packed)
    with storage_errors(as_parquet):
        write_atomic(as_parquet, packed.getvalue(), durable=False)
    return as_csv, as_parquet
