"""Server-sent events on the wire."""

from __future__ import annotations

from typing import Any

__all__ = ["HEARTBEAT", "HEARTBEAT_EVERY", "STREAM", "message"]

HEARTBEAT = b":\n\n"
HEARTBEAT_EVERY = 15.0  # seconds

STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


def message(name: str, data: str, id: int | None = None) -> bytes:
    """One event; `data` is one line."""
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {name}\ndata: {data}\n\n".encode()
