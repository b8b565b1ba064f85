"""Matching inside the executors: the subscriptions of the state, loaded once per process, against batches of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.port import Events, Matcher, Subscriptions
from roamcast.match.reference import ReferenceMatcher
from roamcast.pipeline.parts import Part, PartFolder
from roamcast.pipeline.schemas import MATCHED_SCHEMA, SUBSCRIPTIONS

__all__ = ["Admission", "admission", "match_events"]


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


def match_events(
    folder: Path,
    parts: tuple[Part, ...],
    batch: int,
    *,
    removals: bool,
    dropped: Mapping[str, npt.NDArray[np.int64]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow: events in, rows of MATCHED_SCHEMA out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        admitted = admission(folder, parts, batch, removals=removals)
        for records in batches:
            events = _without(records, dropped)
            if events.num_rows:
                yield _match(events, admitted)

    return run


def _without(events: pa.RecordBatch, dropped: Mapping[str, npt.NDArray[np.int64]]) -> pa.RecordBatch:
    positions = events["position"].to_numpy()
    keep = np.ones(events.num_rows, dtype=np.bool_)
    for node, gone in dropped.items():
        of_node = pc.equal(events["node"], node).to_numpy(zero_copy_only=False)
        keep &= ~(of_node & np.isin(positions, gone))
    return events if keep.all() else events.filter(pa.array(keep))


def _match(events: pa.RecordBatch, admitted: Admission) -> pa.RecordBatch:
    found = admitted.matcher.match(Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"]))
    positions = events["position"].to_numpy()[found.event]
    kept = admitted.admits(events["node"].take(pa.array(found.event)), positions, found.subscription)
    event, subscription = found.event[kept], found.subscription[kept]
    matched, counts = np.unique(event, return_counts=True)
    rows = events.take(pa.array(matched))
    offsets = np.concatenate(([0], np.cumsum(counts)))
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(subscription, pa.int32()))
    return pa.RecordBatch.from_arrays([rows["node"], rows["position"], _as_json(rows), lists], schema=MATCHED_SCHEMA)


def _as_json(events: pa.RecordBatch) -> pa.Array:
    """Each event as its receivers will read it."""
    columns = (events[name].to_pylist() for name in ("id", "entity", "seq", "time", "x", "y", "terms", "readings"))
    return pa.array(
        [
            orjson.dumps(
                {
                    "id": id_, "source": source, "seq": seq, "time": time, "x": x, "y": y,
                    "terms": terms or [], "readings": dict(readings or ()),
                }
            ).decode()
            for id_, source, seq, time, x, y, terms, readings in zip(*columns, strict=True)
        ],
        pa.string(),
    )  # fmt: skip
