"""State rows: finding subscriptions and bindings of a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from roamcast.pipeline.schemas import BINDINGS, SUBSCRIPTIONS, StateTable
from roamcast.pipeline.state.control import Row
from roamcast.pipeline.state.lookups import EndLimits, Integers, TableLookup
from roamcast.pipeline.state.parts import Part

__all__ = ["LiveSubscriptions", "StateRows"]

_FEW: Final = 1_000  # up to this many names are looked up by an index, which is built once


class LiveSubscriptions(NamedTuple):
    """Live subscriptions: for each the index of the name by which it was found, and its row."""

    name_index: Integers
    rows: pa.Table


class StateRows:
    """Finds rows of a state, given the folder of parts and the parts of each table.

    Names are columns of equal length: the nodes and the ids of subscriptions. `find_live` and `find_bound` are for very
    many names.
    """

    def __init__(self, folder: Path, tables: Mapping[str, tuple[Part, ...]]) -> None:
        self._folder = folder
        self._tables = tables

    @classmethod
    def empty(cls) -> Self:
        """A state without rows."""
        return cls(Path(), {})

    def lookup(self, table: StateTable) -> TableLookup:
        return TableLookup(self._folder, table.name, self._tables.get(table.name, ()))

    def with_handles(self, handles: Integers) -> pa.Table:
        """The subscriptions with these handles, ended ones included."""
        lookup = self.lookup(SUBSCRIPTIONS)
        return lookup.take(lookup.find(("handle",), [pa.array(handles)]).row)

    def find_live(self, node: pa.Array, id: pa.Array) -> LiveSubscriptions:
        """The live subscriptions with these names."""
        lookup = self.lookup(SUBSCRIPTIONS)
        pairs = lookup.find(("node", "id"), (node, id), EndLimits.live_only(len(id)), scan=len(id) > _FEW)
        return LiveSubscriptions(pairs.key, lookup.take(pairs.row))

    def find_bound(self, node: pa.Array, id: pa.Array) -> Integers:
        """The indices of those names for which a binding is kept, once for each binding."""
        return self.lookup(BINDINGS).find(("node", "id"), (node, id), scan=len(id) > _FEW).key

    def live_subscriptions(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        """The live subscriptions with these names."""
        return self._find(SUBSCRIPTIONS, ("node", "id"), (node, id), EndLimits.live_only(len(id)))

    def recent_bindings(
        self, node: Sequence[str], id: Sequence[str], home: Sequence[str], source: Sequence[str], time: Sequence[int]
    ) -> list[Row]:
        """The bindings of these subscriptions and sources that are live or ended at `time` or later."""
        limits = EndLimits.live_only(len(id))._replace(time=np.array(time, np.int64) - 1)
        return self._find(BINDINGS, ("node", "id", "home", "source"), (node, id, home, source), limits)

    def bindings_of(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        """All bindings of these subscriptions that are kept."""
        return self._find(BINDINGS, ("node", "id"), (node, id))

    def _find(
        self, table: StateTable, columns: Sequence[str], keys: Sequence[Sequence[str]], limits: EndLimits | None = None
    ) -> list[Row]:
        lookup = self.lookup(table)
        pairs = lookup.find(columns, [pa.array(column, pa.string()) for column in keys], limits)
        rows: list[Row] = lookup.take(pairs.row).to_pylist()
        return rows
