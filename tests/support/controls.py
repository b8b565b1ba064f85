"""Helpers for tests of control records: a state with known rows, and the changes that records make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from batches import Placed, control, placed
from worlds import NOON

from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, UNBINDING, Record
from roamcast.lacl import parse
from roamcast.lacl.syntax import Condition
from roamcast.pipeline.state.changes import ControlChanges, apply_records
from roamcast.pipeline.state.control import Row


def condition(text: str) -> Condition:
    """The condition of an On clause."""
    on = parse(f"Select Where &location in nearest On {text}").on
    assert on is not None
    return on


def bind(id: str, source: str, time: int = NOON, body: BindingBody | None = None) -> Record:
    return Record(BINDING, source, id=id, time=time, body=(body or BindingBody("ann")).to_json())


def unbind(id: str, source: str, time: int = NOON) -> Record:
    return Record(UNBINDING, source, id=id, time=time)


class KnownRows(NamedTuple):
    """The finders of `StateRows`, with these rows."""

    subscriptions: Sequence[Row] = ()
    bindings: Sequence[Row] = ()

    def live_subscriptions(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        names = set(zip(node, id, strict=True))
        return [row for row in self.subscriptions if row["until"] is None and (row["node"], row["id"]) in names]

    def recent_bindings(
        self,
        node: Sequence[str],
        id: Sequence[str],
        home: Sequence[str],
        source: Sequence[str],
        time: Sequence[int],
    ) -> list[Row]:
        recent = []
        for *name, since in zip(node, id, home, source, time, strict=True):
            for row in self.bindings:
                is_named = [row["node"], row["id"], row["home"], row["source"]] == name
                if is_named and (row["until"] is None or row["end"] >= since) and row not in recent:
                    recent.append(row)
        return recent

    def bindings_of(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        names = set(zip(node, id, strict=True))
        return [row for row in self.bindings if (row["node"], row["id"]) in names]


def change(
    rows: Sequence[Placed], subscriptions: Sequence[Row] = (), bindings: Sequence[Row] = (), batch: int = 7
) -> ControlChanges:
    """Apply records to a state with these rows."""
    return apply_records(control(rows).records, batch, KnownRows(subscriptions, bindings))


def subscription_rows(*records: Record, node: str = "local") -> list[Row]:
    """The rows of subscriptions that an earlier batch created."""
    return change(placed(records, node), batch=0).subscriptions.to_pylist()


def binding_rows(*records: Record, node: str = "local") -> list[Row]:
    """The rows of bindings that an earlier batch created."""
    return change(placed(records, node), batch=0).bindings.to_pylist()


def subscription_spans(changes: ControlChanges) -> list[tuple[str, str, int, int | None, int | None]]:
    """(node, id, since, until, removed_in) of the subscriptions that were written."""
    rows = changes.subscriptions.to_pylist()
    return [(row["node"], row["id"], row["since"], row["until"], row["removed_in"]) for row in rows]


def binding_spans(changes: ControlChanges) -> list[tuple[str, str, int, int | None, int, int | None]]:
    """(id, source, since, until, begin, end) of the bindings that were written."""
    rows = changes.bindings.to_pylist()
    return [tuple(row[name] for name in ("id", "source", "since", "until", "begin", "end")) for row in rows]
