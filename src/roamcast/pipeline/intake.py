"""What a batch's records mean: which events are new, which subscriptions change, what must be set aside.

Pure: the same records and the same state give the same result, whatever order Spark hands the records over in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.deliver.ranges import Ranges
from roamcast.errors import InputError
from roamcast.journal.records import EVENT, REMOVAL, SUBSCRIPTION
from roamcast.pipeline.schemas import SUBSCRIPTIONS

__all__ = ["Intake", "SetAside", "Source", "take_in", "without"]

BODY_VERSION = 1

# What was seen of a source is kept for ever: one that leaves a gap at each event would make every batch dearer.
MOST_GAPS = 10_000

Row = dict[str, Any]
Lookup = Callable[[Sequence[str]], Iterable[Row]]


class SetAside(NamedTuple):
    """A record that cannot be processed, and why."""

    node: str
    position: int
    reason: str


class Source(NamedTuple):
    """A source by the node it is registered at: nodes give ids on their own."""

    node: str
    name: str


@dataclass(frozen=True, slots=True)
class Intake:
    """`dropped` are the positions, by node, of events that are copies or set aside.

    `subscriptions` are the rows this batch writes; `growth` is how many more are live after it.
    """

    events: int
    duplicates: int
    dropped: Mapping[str, npt.NDArray[np.int64]]
    seen: Mapping[Source, Ranges]
    subscriptions: pa.Table
    growth: int
    set_aside: list[SetAside] = field(default_factory=list)


def take_in(records: pa.Table, batch: int, seen: Mapping[Source, Ranges], lookup: Lookup) -> Intake:
    """`records` has SIFTED_SCHEMA; what matched does not matter here.

    `seen` holds the numbers seen of each source; `lookup` gives the live subscriptions with some ids. Of copies of an
    event the first counts. Nodes give ids on their own: (node, id) is the identity of a source and of a subscription.
    """
    records = records.sort_by([("node", "ascending"), ("position", "ascending")])
    is_event = pc.equal(records["kind"], EVENT)
    whole = pc.and_(is_event, records["whole"])
    set_aside = [
        SetAside(row["node"], row["position"], "an event needs source, seq >= 1, id, time and a finite point")
        for row in records.filter(pc.and_not(is_event, records["whole"])).select(["node", "position"]).to_pylist()
    ]
    events = records.filter(whole)
    is_new, seen_now, gappy = _first_copies(events, seen)
    set_aside += gappy
    subscriptions, growth, refused = _changes(records.filter(pc.invert(is_event)), batch, lookup)
    copies = events.filter(pa.array(~is_new))
    return Intake(
        events=events.num_rows - len(gappy),
        duplicates=copies.num_rows - len(gappy),
        dropped=_positions_by_node([*copies.select(["node", "position"]).to_batches()], set_aside),
        seen=seen_now,
        subscriptions=subscriptions,
        growth=growth,
        set_aside=sorted([*set_aside, *refused]),
    )


def _first_copies(
    events: pa.Table, seen: Mapping[Source, Ranges]
) -> tuple[npt.NDArray[np.bool_], Mapping[Source, Ranges], list[SetAside]]:
    """For each event whether its (source, seq) is new; the ranges of sources with anything new; and what is refused."""
    is_new = np.zeros(events.num_rows, dtype=np.bool_)
    changed: dict[Source, Ranges] = {}
    refused: list[SetAside] = []
    if not events.num_rows:
        return is_new, changed, refused
    nodes, names = (events[name].combine_chunks().dictionary_encode() for name in ("node", "entity"))
    pairs = nodes.indices.to_numpy() * np.int64(len(names.dictionary)) + names.indices.to_numpy()
    seqs, positions = events["seq"].to_numpy(), events["position"].to_numpy()
    order = np.argsort(pairs, kind="stable")
    starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        node, name = divmod(int(pairs[rows[0]]), len(names.dictionary))
        source = Source(nodes.dictionary[node].as_py(), names.dictionary[name].as_py())
        ranges, fresh = seen.get(source, Ranges()).merge(seqs[rows].tolist())
        if ranges.gaps > MOST_GAPS:
            reason = f"the numbers of {source.name} have more than {MOST_GAPS} gaps: number events densely"
            refused += [SetAside(source.node, int(positions[row]), reason) for row in rows[np.array(fresh)]]
            continue
        is_new[rows] = fresh
        if any(fresh):
            changed[source] = ranges
    return is_new, changed, refused


def _positions_by_node(
    copies: Sequence[pa.RecordBatch], set_aside: Sequence[SetAside]
) -> dict[str, npt.NDArray[np.int64]]:
    places = [(row["node"], row["position"]) for batch in copies for row in batch.to_pylist()]
    places += [(item.node, item.position) for item in set_aside]
    found = sorted({node for node, _ in places})
    return {node: np.array(sorted({p for n, p in places if n == node}), dtype=np.int64) for node in found}


def without(sifted: pa.Table, dropped: Mapping[str, npt.NDArray[np.int64]]) -> pa.Table:
    """The rows of SIFTED_SCHEMA that matched, less those dropped."""
    events = sifted.filter(pc.is_valid(sifted["event"]))
    positions = events["position"].to_numpy()
    keep = np.ones(events.num_rows, dtype=np.bool_)
    for node, gone in dropped.items():
        of_node = pc.equal(events["node"], node).to_numpy()
        keep &= ~(of_node & np.isin(positions, gone))
    return events if keep.all() else events.filter(pa.array(keep))


def _changes(control: pa.Table, batch: int, lookup: Lookup) -> tuple[pa.Table, int, list[SetAside]]:
    """The rows that this batch writes, and the growth. Making again what is live changes nothing."""
    rows = control.to_pylist()
    known_rows = lookup([row["id"] for row in rows if row["id"] is not None]) if rows else ()
    live: dict[tuple[str, str], Row] = {(row["node"], row["id"]): row for row in known_rows}
    before = len(live)
    written: dict[tuple[str, int], Row] = {}
    refused: list[SetAside] = []

    def end(row: Row, position: int) -> None:
        written[row["node"], row["since"]] = {**row, "until": position, "removed_in": batch}

    for row in rows:
        try:
            change = _read_change(row)
        except InputError as error:
            refused.append(SetAside(row["node"], row["position"], error.message))
            continue
        name = row["node"], row["id"]
        known = live.pop(name, None)
        if change is None:
            if known:
                end(known, row["position"])
            continue
        if known and all(known[column] == change[column] for column in _CONTENT):
            live[name] = known
            continue
        if known:
            end(known, row["position"])
        live[name] = written[change["node"], change["since"]] = change
    return pa.Table.from_pylist(list(written.values()), SUBSCRIPTIONS.schema), len(live) - before, refused


_CONTENT = ("subscriber", "min_x", "min_y", "max_x", "max_y", "terms")


def _read_change(record: Row) -> Row | None:
    """The subscription that a record makes; None if it removes one. Raises InputError for what cannot be processed."""
    if record["kind"] not in (SUBSCRIPTION, REMOVAL):
        raise InputError(f"unknown kind {record['kind']!r}")
    if not record["id"] or not record["entity"]:
        raise InputError("a subscription needs an id and a subscriber")
    if record["kind"] == REMOVAL:
        return None
    try:
        body = orjson.loads(record["body"] or b"")
        version, box, terms = body["version"], body["box"], body["terms"]
        min_x, min_y, max_x, max_y = corners = box if box is not None else [-np.inf, -np.inf, np.inf, np.inf]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"the body of a subscription is unreadable: {error}") from error
    if version != BODY_VERSION:
        raise InputError(f"the body of a subscription has version {version!r}, not {BODY_VERSION}")
    if not all(type(corner) in (int, float) for corner in corners) or min_y > max_y:
        raise InputError(f"a subscription's box is not a box: {box}")
    if not isinstance(terms, list) or not all(isinstance(term, str) for term in terms):
        raise InputError("a subscription's terms are not a list of texts")
    return {
        "node": record["node"],
        "since": record["position"],
        "id": record["id"],
        "subscriber": record["entity"],
        "min_x": float(min_x),
        "min_y": float(min_y),
        "max_x": float(max_x),
        "max_y": float(max_y),
        "terms": sorted(set(terms)),
        "until": None,
        "removed_in": None,
    }
