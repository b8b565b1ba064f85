"""Results under the names that the ONE simulator's reports use, as CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.collect.simulation.field import World
from roamcast.collect.simulation.outcome import Outcome
from roamcast.durable import make_folder, storage_errors, write_atomic

__all__ = ["deliveries", "message_stats", "write_reports"]


def message_stats(outcome: Outcome) -> dict[str, float]:
    """As MessageStatsReport has them.

    Here an event has several receivers: `created` counts events, `delivered` and `delivery_prob` count pairs of an
    event and a mule that wants it. `relayed` counts all transfers, `removed` what left a queue by its rules.
    """
    counts, delivered = outcome.counts, len(outcome.delivered)
    return {
        "sim_time": outcome.ended_s,
        "created": counts["born"],
        "relayed": counts["hops"],
        "dropped": counts["full"] + counts["expired"],
        "removed": counts["spent"] + counts["stranded"],
        "delivered": delivered,
        "delivery_prob": delivered / outcome.wanted if outcome.wanted else 0.0,
        "overhead_ratio": (counts["hops"] - delivered) / delivered if delivered else 0.0,
        "latency_avg": float(outcome.delay_s.mean()) if delivered else 0.0,
        "latency_med": float(np.median(outcome.delay_s)) if delivered else 0.0,
        "hopcount_avg": float(outcome.delivered[:, 3].mean()) if delivered else 0.0,
        "hopcount_med": float(np.median(outcome.delivered[:, 3])) if delivered else 0.0,
    }


def deliveries(world: World, outcome: Outcome) -> pa.Table:
    """One row for each first receipt by a mule that wants the event, in the order of receipt."""
    event = outcome.delivered[:, 2]
    born = world.births.time[event]
    return pa.table(
        {
            "event": event,
            "source": world.births.sensor[event],
            "mule": outcome.delivered[:, 1],
            "created": born,
            "received": born + outcome.delay_s,
            "latency": outcome.delay_s,
            "hopcount": outcome.delivered[:, 3],
        }
    )


def write_reports(folder: Path, world: World, outcomes: Mapping[str, Outcome]) -> list[Path]:
    """`message_stats` with a row for each protocol and the `deliveries` of each, all as CSV and Parquet."""
    make_folder(folder)
    stats = pa.Table.from_pylist([{"protocol": name, **message_stats(outcome)} for name, outcome in outcomes.items()])
    tables = {"message_stats": stats}
    tables |= {f"deliveries_{name.lower()}": deliveries(world, outcome) for name, outcome in outcomes.items()}
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
