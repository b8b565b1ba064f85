"""The stores that the contract suites run over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roamcast.store.memory import MemoryMailboxes, MemoryRegistry
from roamcast.store.port import MailboxStore, RegistryStore
from roamcast.store.sql import SqlMailboxes, SqlRegistry, open_sqlite

KINDS = ["memory", "sqlite"]


@pytest.fixture(params=KINDS)
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RegistryStore]:
    """A new registry of each kind."""
    store: RegistryStore
    store = MemoryRegistry() if request.param == "memory" else SqlRegistry(open_sqlite(tmp_path / "store.db"))
    yield store
    store.close()


@pytest.fixture(params=KINDS)
def mailboxes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MailboxStore]:
    """New mailboxes of each kind."""
    store: MailboxStore
    store = MemoryMailboxes() if request.param == "memory" else SqlMailboxes(open_sqlite(tmp_path / "store.db"))
    yield store
    store.close()
