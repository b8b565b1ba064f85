"""Inside the executors: events meet the subscriptions and the bindings of the state, loaded once per process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.records import EVENT
from roamcast.match.port import Events, Matcher, Subscriptions
from roamcast.match.reference import ReferenceMatcher
from roamcast.pipeline.exact import passes
from roamcast.pipeline.facts import Facts
from roamcast.pipeline.joining import join
from roamcast.pipeline.layers import Found, Integers, Layers
from roamcast.pipeline.parts import Part, PartFolder
from roamcast.pipeline.schemas import BINDINGS, EARLIEST, LATEST, SIFTED_SCHEMA, SUBSCRIPTIONS

__all__ = ["Admission", "Sieve", "sift"]


@dataclass(frozen=True, slots=True)
class Admission:
    """The subscriptions that may get events of one batch, in a fixed order, and their matcher."""

    rows: pa.Table
    matcher: Matcher

    def admits(
        self, nodes: pa.Array, positions: npt.NDArray[np.int64], subscriptions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Whether the event at (node, position) comes within the life of the subscription beside it.

        Order exists inside a node only: events of other nodes see a subscription in all of a batch it lives in.
        """
        rows = self.rows.select(["node", "since", "until"]).take(pa.array(subscriptions))
        same_node: npt.NDArray[np.bool_] = pc.equal(rows["node"], nodes).to_numpy(zero_copy_only=False)
        since: npt.NDArray[np.int64] = rows["since"].to_numpy()
        until: npt.NDArray[np.int64] = pc.fill_null(rows["until"], np.iinfo(np.int64).max).to_numpy()
        return ~same_node | ((since < positions) & (positions < until))


@lru_cache(maxsize=2)
def _admission(folder: Path, parts: tuple[Part, ...], batch: int | None) -> Admission:
    rows = PartFolder(folder).read_all(SUBSCRIPTIONS, parts)
    ended = rows["removed_in"]
    live = pc.is_null(ended)
    rows = rows.filter(live if batch is None else pc.or_kleene(live, pc.equal(ended, batch))).combine_chunks()
    min_x, min_y, max_x, max_y = (rows[side].to_numpy() for side in ("min_x", "min_y", "max_x", "max_y"))
    terms = rows["terms"].combine_chunks() if rows.num_rows else pa.array([], pa.list_(pa.string()))
    return Admission(rows, ReferenceMatcher(Subscriptions(min_x, min_y, max_x, max_y, terms)))


class Sieve(NamedTuple):
    """Which state a batch's events meet. The same on the driver and in every executor.

    `removals`: the batch itself removed subscriptions, which still count for its earlier events. `sources` are those,
    as pairs (node, source), of which every event is told, not the newest alone.
    """

    folder: Path
    subscriptions: tuple[Part, ...]
    bindings: tuple[Part, ...]
    batch: int
    removals: bool
    sources: frozenset[tuple[str, str]] = frozenset()

    def admission(self) -> Admission:
        """Kept from batch to batch while the parts stay the same."""
        return _admission(self.folder, self.subscriptions, self.batch if self.removals else None)

    def layers(self) -> Layers:
        return Layers(self.folder, BINDINGS.name, self.bindings)


def sift(sieve: Sieve) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow: records in, a row of SIFTED_SCHEMA for each event out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        admitted, bindings = sieve.admission(), sieve.layers()
        for records in batches:
            yield _sifted(records.filter(pc.equal(records["kind"], EVENT)), admitted, bindings, sieve.sources)

    return run


def _sifted(
    records: pa.RecordBatch, admitted: Admission, bindings: Layers, sources: frozenset[tuple[str, str]]
) -> pa.RecordBatch:
    whole = _has_all_it_needs(records)
    rows = np.flatnonzero(whole.to_numpy(zero_copy_only=False))
    events = records.take(pa.array(rows))
    facts = Facts(events)
    matched, bound = _match(facts, admitted), join(facts, bindings)
    told = np.unique(np.concatenate((matched.key, bound.key, _newest(events), _of(events, sources))))
    json: npt.NDArray[np.object_] = np.full(records.num_rows, None, dtype=np.object_)
    json[rows[told]] = _as_json(events.take(pa.array(told)))
    event = pa.array(json, pa.string())
    columns = {
        **{name: records[name] for name in ("node", "position", "entity", "seq")},
        "time": records["time"].cast(pa.int64()),
        "whole": whole,
        "event": event,
        "attributes": pc.if_else(pc.is_valid(event), records["body"], None),
        "subscriptions": _lists(matched, rows, records.num_rows, pa.int32()),
        "bindings": _lists(bound, rows, records.num_rows, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns, SIFTED_SCHEMA)


def _lists(found: Found, rows: Integers, count: int, type: pa.DataType) -> pa.ListArray:
    """For each of `count` records the rows that were found for it; `found.key` are numbers in `rows`."""
    lengths = np.bincount(rows[found.key], minlength=count)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(found.row, type))


def _newest(events: pa.RecordBatch) -> Integers:
    """The event of each source with the highest number, and of its copies the first.

    If that is itself a copy of one that was seen before, there is nothing newer here.
    """
    source = _pairs(events)
    seq, position = events["seq"].to_numpy(), events["position"].to_numpy()
    order = np.lexsort((-position, seq, source))
    last: Integers = order[np.append(np.diff(source[order]) != 0, True)] if len(order) else order
    return last


def _of(events: pa.RecordBatch, sources: frozenset[tuple[str, str]]) -> Integers:
    if not sources:
        return np.empty(0, np.int64)
    pairs = zip(events["node"].to_pylist(), events["entity"].to_pylist(), strict=True)
    return np.flatnonzero([pair in sources for pair in pairs])


def _pairs(events: pa.RecordBatch) -> Integers:
    """A number for each (node, source)."""
    nodes, names = (events[name].dictionary_encode() for name in ("node", "entity"))
    numbers: Integers = nodes.indices.to_numpy() * np.int64(len(names.dictionary)) + names.indices.to_numpy()
    return numbers


def _has_all_it_needs(records: pa.RecordBatch) -> pa.Array:
    """Source, number, id, a time that has a date, and a finite point."""
    time = records["time"].cast(pa.int64())
    tests = (
        pc.is_valid(records["entity"]),
        pc.is_valid(records["id"]),
        pc.greater_equal(records["seq"], 1),
        pc.and_(pc.greater_equal(time, EARLIEST), pc.less_equal(time, LATEST)),
        pc.and_(pc.is_finite(records["x"]), pc.is_finite(records["y"])),
    )
    return pc.fill_null(reduce(pc.and_kleene, tests), False)


def _match(facts: Facts, admitted: Admission) -> Found:
    """Pairs of rows, of events and of subscriptions, ordered by event."""
    events = facts.events
    found = admitted.matcher.match(Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"]))
    positions = events["position"].to_numpy()[found.event]
    kept = admitted.admits(events["node"].take(pa.array(found.event)), positions, found.subscription)
    event, subscription = found.event[kept], found.subscription[kept]
    exact = passes(facts, event, admitted.rows, subscription)
    return Found(event[exact], subscription[exact])


def _as_json(events: pa.RecordBatch) -> list[str]:
    """Each event as its receivers will read it."""
    columns = (events[name].to_pylist() for name in ("id", "entity", "seq", "time", "x", "y", "terms", "readings"))
    return [
        orjson.dumps(
            {
                "id": id_, "source": source, "seq": seq, "time": time, "x": x, "y": y,
                "terms": terms or [], "readings": dict(readings or ()),
            }
        ).decode()
        for id_, source, seq, time, x, y, terms, readings in zip(*columns, strict=True)
    ]  # fmt: skip
