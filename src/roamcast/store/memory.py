"""The store in memory, for tests and experiments: nothing is durable."""

from __future__ import annotations

from roamcast.store.memory_mailboxes import MemoryMailboxes
from roamcast.store.memory_registry import MemoryRegistry

__all__ = ["MemoryMailboxes", "MemoryRegistry"]
