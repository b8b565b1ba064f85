"""How much of a mailbox is handed out at a time."""

from __future__ import annotations

from collections.abc import Iterable

from roamcast.store.port import Entry

__all__ = ["fitting"]


def fitting(entries: Iterable[Entry], size: int | None) -> list[Entry]:
    """The first entry, and those behind it as long as all bodies together have at most `size` bytes."""
    fit: list[Entry] = []
    total = 0
    for entry in entries:
        total += len(entry.body.encode())
        if fit and size is not None and total > size:
            break
        fit.append(entry)
    return fit
