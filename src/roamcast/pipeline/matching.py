"""Matching inside the executors: the subscriptions of the state, loaded once per process, against batches of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.records import EVENT
from roamcast.match.port import Events, Matcher, Subscriptions
from roamcast.match.reference import ReferenceMatcher
from roamcast.pipeline.parts import Part, PartFolder
from roamcast.pipeline.schemas import SIFTED_SCHEMA, SUBSCRIPTIONS

__all__ = ["Admission", "admission", "sift"]

# The times that Python has a date for, the years 1 to 9999, in microseconds since 1970.
_EARLIEST: Final = -62_135_596_800_000_000
_LATEST: Final = 253_402_300_799_999_999

Integers = npt.NDArray[np.int64]


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
        rows = self.rows.take(pa.array(subscriptions))
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


def admission(folder: Path, parts: tuple[Part, ...], batch: int, *, removals: bool) -> Admission:
    """The same on the driver and in every executor. Kept from batch to batch while the parts stay the same."""
    return _admission(folder, parts, batch if removals else None)


def sift(
    folder: Path, parts: tuple[Part, ...], batch: int, *, removals: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow: records in, a row of SIFTED_SCHEMA for each out, matched with these subscriptions."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        admitted = admission(folder, parts, batch, removals=removals)
        for records in batches:
            yield _sifted(records, admitted)

    return run


def _sifted(records: pa.RecordBatch, admitted: Admission) -> pa.RecordBatch:
    is_event = pc.equal(records["kind"], EVENT)
    whole = pc.and_(is_event, _has_all_it_needs(records))
    rows = np.flatnonzero(whole.to_numpy(zero_copy_only=False))
    event, subscription = _match(records.take(pa.array(rows)), admitted)
    matched, counts = np.unique(rows[event], return_counts=True)
    lengths = np.zeros(records.num_rows, dtype=np.int64)
    lengths[matched] = counts
    json: npt.NDArray[np.object_] = np.full(records.num_rows, None, dtype=np.object_)
    json[matched] = _as_json(records.take(pa.array(matched)))
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    columns = {
        **{name: records[name] for name in ("node", "position", "kind", "entity", "seq", "body")},
        "id": pc.if_else(is_event, None, records["id"]),
        "whole": whole,
        "event": pa.array(json, pa.string()),
        "subscriptions": pa.ListArray.from_arrays(offsets, pa.array(subscription, pa.int32())),
    }
    return pa.RecordBatch.from_pydict(columns, SIFTED_SCHEMA)


def _has_all_it_needs(records: pa.RecordBatch) -> pa.Array:
    """Source, number, id, a time that has a date, and a finite point."""
    time = records["time"].cast(pa.int64())
    tests = (
        pc.is_valid(records["entity"]),
        pc.is_valid(records["id"]),
        pc.greater_equal(records["seq"], 1),
        pc.and_(pc.greater_equal(time, _EARLIEST), pc.less_equal(time, _LATEST)),
        pc.and_(pc.is_finite(records["x"]), pc.is_finite(records["y"])),
    )
    return pc.fill_null(reduce(pc.and_kleene, tests), False)


def _match(events: pa.RecordBatch, admitted: Admission) -> tuple[Integers, Integers]:
    """Rows of events and of the subscriptions beside them, ordered by event."""
    found = admitted.matcher.match(Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"]))
    positions = events["position"].to_numpy()[found.event]
    kept = admitted.admits(events["node"].take(pa.array(found.event)), positions, found.subscription)
    return found.event[kept], found.subscription[kept]


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
