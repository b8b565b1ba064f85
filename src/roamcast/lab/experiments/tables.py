"""Tables as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roamcast.durable import write_atomic

__all__ = ["write_csv"]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """With the columns of the first row; numbers that are not whole have six digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()})
    write_atomic(path, text.getvalue().encode(), durable=False)
    return path
