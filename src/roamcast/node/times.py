"""Times as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["iso"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(micros: int) -> str:
    """ISO 8601 in UTC."""
    return (_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
