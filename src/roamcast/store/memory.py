"""The stores in memory, for tests and experiments: nothing is durable."""

from __future__ import annotations

from roamcast.store.memory_office import MemoryOfficeStore
from roamcast.store.memory_registry import MemoryRegistry

__all__ = ["MemoryOfficeStore", "MemoryRegistry"]
