"""What a group of requests changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from roamcast.journal.records import Record
from roamcast.store.registry.values import Change

__all__ = ["ControlUpdate"]


@dataclass(slots=True)
class ControlUpdate:
    """Changes to store and records to journal, both in the order in which they happened."""

    changes: list[Change] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def add(self, other: ControlUpdate) -> None:
        self.changes += other.changes
        self.records += other.records
