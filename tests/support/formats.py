"""Helpers for tests of file formats: writing features, and reading a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from roamcast.space import GEOGRAPHIC, Space
from roamcast.spark.file_formats import plan_blocks, read_block
from roamcast.spark.file_rows import EVENTS, FileLayout

MOMENT = datetime(2026, 3, 1, 10, tzinfo=UTC)


def read_all(
    path: Path, layout: FileLayout = EVENTS, space: Space = GEOGRAPHIC, block_bytes: int = 1 << 20
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The good rows, and the problem of each bad row by its location."""
    good: list[dict[str, Any]] = []
    bad: dict[str, str] = {}
    for block in plan_blocks(path, layout, block_bytes=block_bytes):
        for rows, columns, problems in read_block(block, layout, space):
            table = pa.RecordBatch.from_arrays(list(columns.values()), schema=layout.schema)
            good += table.filter(pa.array([problem is None for problem in problems])).to_pylist()
            for row, problem in zip(rows, problems, strict=True):
                if problem is not None:
                    bad[block.where(int(row)).removeprefix(f"{path.parent}/")] = problem
    return good, bad


def features(path: Path, *rows: Any) -> Path:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": list(rows)}))
    return path


def feature(geometry: Any, bbox: Any = None, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "geometry": geometry, "properties": properties} | ({"bbox": bbox} if bbox else {})


def point(x: Any, y: Any, *z: Any) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [x, y, *z]}
