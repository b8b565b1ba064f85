"""Request bodies with random events, one for each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.client.arrow_tables import ARROW_STREAM, stream_body
from roamcast.model import iso

__all__ = ["FORMATS", "BodyFormat", "event_table", "json_events"]

_TERMS: Final = 20_000
_EPOCH: Final = 1_700_000_000_000_000


class BodyFormat(NamedTuple):
    """A format, how many events are in a body, and what makes one."""

    media_type: str
    events: int
    make: Callable[[pa.Table], bytes]


def event_table(count: int, seed: int) -> pa.Table:
    """Events with a point, a time, two terms and a reading."""
    rng = np.random.default_rng(seed)
    terms = rng.zipf(1.3, (count, 2)) % _TERMS
    return pa.table(
        {
            "time": pa.array(_EPOCH + rng.integers(0, 10**12, count)).cast(pa.timestamp("us", "UTC")),
            "x": rng.uniform(-180, 180, count),
            "y": rng.uniform(-90, 90, count),
            "terms": pa.array([[f"t{one}", f"u{other}"] for one, other in terms.tolist()]),
            "readings": pa.array(
                [[("celsius", value)] for value in rng.normal(20, 5, count).tolist()],
                pa.map_(pa.string(), pa.float64()),
            ),
        }
    )


def json_events(table: pa.Table) -> list[bytes]:
    """Each event as a JSON object."""
    times = table["time"].cast(pa.int64()).to_pylist()
    rows = table.drop_columns(["time"]).to_pylist()
    return [
        orjson.dumps({**row, "readings": dict(row["readings"]), "time": iso(time)})
        for row, time in zip(rows, times, strict=True)
    ]


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


FORMATS: Final[Mapping[str, BodyFormat]] = {
    "json": BodyFormat("application/json", 500, lambda table: b"[%s]" % b",".join(json_events(table))),
    "ndjson": BodyFormat("application/x-ndjson", 500, lambda table: b"\n".join(json_events(table))),
    "arrow": BodyFormat(ARROW_STREAM, 5_000, stream_body),
    "parquet": BodyFormat("application/vnd.apache.parquet", 5_000, _parquet),
}
