"""Tables as plain text, and times as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

__all__ = ["clock_time", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as what is in them; the last one as it is."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows))
    return "\n".join(line.rstrip() for line in lines)


def clock_time(text: str | None) -> str:
    """An ISO 8601 time as it is here, to the second."""
    return "" if text is None else datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
