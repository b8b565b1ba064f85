"""Points in time, as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from roamcast.errors import InputError

__all__ = ["parse_moment"]

_UNITS: Final = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)\s+ago")
_HINT: Final = "for example 2026-03-01T12:00Z, '2026-03-01 12:00' (local time), '90 min ago', '2 d ago' or now"


def parse_moment(text: str, now: int, where: str) -> int:
    """Microseconds since 1970. Raises InputError, which names the option `where`."""
    words = text.strip().lower()
    if words == "now":
        return now
    if ago := _AGO.fullmatch(words):
        return now - round(float(ago[1]) * _UNITS[ago[2]] * 1_000_000)
    try:
        time = datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f"not a time: {text!r}", where=where, hint=_HINT) from None
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
