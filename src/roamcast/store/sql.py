"""The store in a database. Both classes may share one engine."""

from __future__ import annotations

from roamcast.store.engine import open_sqlite
from roamcast.store.sql_mailboxes import SqlMailboxes
from roamcast.store.sql_registry import SqlRegistry

__all__ = ["SqlMailboxes", "SqlRegistry", "open_sqlite"]
