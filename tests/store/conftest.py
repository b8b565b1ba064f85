"""The stores that the contract suites run over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roamcast.deliver.port import OfficeStore
from roamcast.lab.models.office_store import MemoryOfficeStore
from roamcast.lab.models.registry import MemoryRegistry
from roamcast.store.office.sql import open_office
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.sql import open_registry

KINDS = ["memory", "sqlite", "postgresql"]

_domains = itertools.count(1)


@pytest.fixture
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path | str]:
    """Where a store of a kind can be opened."""
    return lambda kind: request.getfixturevalue("postgresql") if kind == "postgresql" else tmp_path


@pytest.fixture(params=KINDS)
def registry(request: pytest.FixtureRequest, location: Callable[[str], Path | str]) -> Iterator[RegistryStore]:
    """A new registry of each kind."""
    kind = request.param
    store: RegistryStore
    store = MemoryRegistry() if kind == "memory" else open_registry(location(kind), f"domain{next(_domains)}")
    yield store
    store.close()


@pytest.fixture(params=KINDS)
def office(request: pytest.FixtureRequest, location: Callable[[str], Path | str]) -> Iterator[OfficeStore]:
    """A new office store of each kind."""
    kind = request.param
    if kind == "memory":
        yield MemoryOfficeStore()
    else:
        store = open_office(location(kind), f"domain{next(_domains)}")
        yield store
        store.close()
