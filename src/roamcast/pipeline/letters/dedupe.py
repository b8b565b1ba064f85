"""Deduplication: every event of a source counts once, by its sequence number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.records import EVENT, FORWARDED, LAST_KNOWN
from roamcast.pipeline.state.control import DeadLetter
from roamcast.pipeline.state.lookups import Truths
from roamcast.ranges import Ranges

__all__ = ["DedupedEvents", "SourceKey", "dedupe_events", "sources_of"]

MAX_GAPS: Final = 10_000
"""The numbers seen of a source are kept for ever. A source that leaves a gap at each event would slow every batch."""

_INCOMPLETE: Final = "an event needs source, seq >= 1, id, time and a finite point"


class SourceKey(NamedTuple):
    """A source and its home. Nodes assign ids independently. Events of a source may come from other nodes."""

    home: str
    name: str


@dataclass(frozen=True, slots=True)
class DedupedEvents:
    """`fresh` are the events that count, ordered by node and offset. `seen` has the sources with new events.

    `last_known` are the events of this kind: they were published before somebody wanted them.
    """

    fresh: pa.Table
    last_known: pa.Table
    duplicates: int
    seen: Mapping[SourceKey, Ranges]
    dead_letters: list[DeadLetter] = field(default_factory=list)


def sources_of(matched: pa.Table) -> list[SourceKey]:
    """The sources of these events. `matched` has MATCHED_SCHEMA."""
    rows = matched.filter(matched["complete"]).group_by(["home", "entity"]).aggregate([])
    return list(map(SourceKey, rows["home"].to_pylist(), rows["entity"].to_pylist()))


def dedupe_events(matched: pa.Table, seen: Mapping[SourceKey, Ranges]) -> DedupedEvents:
    """Drop duplicates and incomplete events. `matched` has MATCHED_SCHEMA, `seen` the numbers of earlier batches.

    Of duplicates the first counts, whichever nodes they come from. Forwarded events have passed this at their home;
    their numbers have gaps for events that nobody wants here, so they are not counted again.
    """
    matched = matched.sort_by([("node", "ascending"), ("offset", "ascending")])
    events = matched.filter(matched["complete"])
    is_local = pc.equal(events["kind"], EVENT).combine_chunks().to_numpy(zero_copy_only=False)
    is_new = pc.equal(events["kind"], FORWARDED).combine_chunks().to_numpy(zero_copy_only=False)
    is_first, changed, refused = _first_copies(events.filter(pa.array(is_local)), seen)
    is_new[is_local] = is_first
    remote = events.filter(pa.array(~is_local)).group_by(["home", "entity"]).aggregate([]).to_pylist()
    for source in (SourceKey(row["home"], row["entity"]) for row in remote):
        changed.setdefault(source, seen.get(source, Ranges()))
    return DedupedEvents(
        fresh=events.filter(pa.array(is_new)),
        last_known=events.filter(pc.equal(events["kind"], LAST_KNOWN)),
        duplicates=int(np.count_nonzero(~is_first)) - len(refused),
        seen=changed,
        dead_letters=[*_dead_letters(matched.filter(pc.invert(matched["complete"])), _INCOMPLETE), *refused],
    )


def _first_copies(
    events: pa.Table, seen: Mapping[SourceKey, Ranges]
) -> tuple[Truths, dict[SourceKey, Ranges], list[DeadLetter]]:
    """For each event whether its (source, seq) is new; the ranges of sources with new numbers; and refused events."""
    is_new = np.zeros(events.num_rows, dtype=np.bool_)
    changed: dict[SourceKey, Ranges] = {}
    refused: list[DeadLetter] = []
    if not events.num_rows:
        return is_new, changed, refused
    homes, names = (events[name].combine_chunks().dictionary_encode() for name in ("home", "entity"))
    pairs = homes.indices.to_numpy() * np.int64(len(names.dictionary)) + names.indices.to_numpy()
    seqs = events["seq"].to_numpy()
    order = np.argsort(pairs, kind="stable")
    starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        home, name = divmod(int(pairs[rows[0]]), len(names.dictionary))
        source = SourceKey(homes.dictionary[home].as_py(), names.dictionary[name].as_py())
        ranges, fresh = seen.get(source, Ranges()).merge(seqs[rows].tolist())
        if ranges.gaps > MAX_GAPS:
            reason = f"the sequence numbers of {source.name} have more than {MAX_GAPS} gaps: number events densely"
            refused += _dead_letters(events.take(pa.array(rows[np.array(fresh)])), reason)
            continue
        is_new[rows] = fresh
        if any(fresh):
            changed[source] = ranges
    return is_new, changed, refused


def _dead_letters(events: pa.Table, reason: str) -> list[DeadLetter]:
    rows = events.select(["node", "offset"]).to_pylist()
    return [DeadLetter(row["node"], row["offset"], reason) for row in rows]
