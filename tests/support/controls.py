"""What tests of control records share: a state that knows some rows, and what records change in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pure import Placed, control, placed
from worlds import NOON

from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, UNBINDING, Record
from roamcast.pipeline.state.control import Changes, Row, changes_of


def bind(id: str, source: str, time: int = NOON, body: BindingBody | None = None) -> Record:
    return Record(BINDING, source, id=id, time=time, body=(body or BindingBody("ann")).to_json())


def unbind(id: str, source: str, time: int = NOON) -> Record:
    return Record(UNBINDING, source, id=id, time=time)


class KnownRows(NamedTuple):
    """A state that knows these rows."""

    wishes: Sequence[Row] = ()
    bonds: Sequence[Row] = ()

    def subscriptions(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        asked = set(zip(node, id, strict=True))
        return [row for row in self.wishes if row["until"] is None and (row["node"], row["id"]) in asked]

    def bindings(
        self,
        node: Sequence[str],
        id: Sequence[str],
        home: Sequence[str],
        source: Sequence[str],
        time: Sequence[int],
    ) -> list[Row]:
        found = []
        for *name, since in zip(node, id, home, source, time, strict=True):
            for row in self.bonds:
                named = [row["node"], row["id"], row["home"], row["source"]] == name
                if named and (row["until"] is None or row["end"] >= since) and row not in found:
                    found.append(row)
        return found

    def bindings_of(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        asked = set(zip(node, id, strict=True))
        return [row for row in self.bonds if (row["node"], row["id"]) in asked]


def change(rows: Sequence[Placed], wishes: Sequence[Row] = (), bonds: Sequence[Row] = (), batch: int = 7) -> Changes:
    """What records make of subscriptions and bindings."""
    return changes_of(control(rows).records, batch, KnownRows(wishes, bonds))


def wishes(*records: Record, node: str = "local") -> list[Row]:
    """The rows of subscriptions that an earlier batch made."""
    return change(placed(records, node), batch=0).subscriptions.to_pylist()


def bonds(*records: Record, node: str = "local") -> list[Row]:
    """The rows of bindings that an earlier batch made."""
    return change(placed(records, node), batch=0).bindings.to_pylist()


def lives(changes: Changes) -> list[tuple[str, str, int, int | None, int | None]]:
    """(node, id, since, until, removed_in) of the subscriptions that were written."""
    rows = changes.subscriptions.to_pylist()
    return [(row["node"], row["id"], row["since"], row["until"], row["removed_in"]) for row in rows]


def spans(changes: Changes) -> list[tuple[str, str, int, int | None, int, int | None]]:
    """(id, source, since, until, begin, end) of the bindings that were written."""
    rows = changes.bindings.to_pylist()
    return [tuple(row[name] for name in ("id", "source", "since", "until", "begin", "end")) for row in rows]
