"""What a batch's events mean: which are new, what was seen of their sources, what must be set aside.

Pure: the same events and the same state give the same result, whatever order Spark hands the events over in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.pipeline.state.control import SetAside
from roamcast.ranges import Ranges

__all__ = ["Intake", "Source", "take_in"]

# What was seen of a source is kept for ever: one that leaves a gap at each event would make every batch dearer.
MOST_GAPS = 10_000


class Source(NamedTuple):
    """A source by the node it is registered at: nodes give ids on their own. Its events may come from other nodes."""

    node: str
    name: str


@dataclass(frozen=True, slots=True)
class Intake:
    """`fresh` are the events that count, ordered by node and offset: neither copies nor set aside."""

    fresh: pa.Table
    duplicates: int
    seen: Mapping[Source, Ranges]
    set_aside: list[SetAside] = field(default_factory=list)


def take_in(sifted: pa.Table, seen: Mapping[Source, Ranges]) -> Intake:
    """`sifted` has SIFTED_SCHEMA; what matched does not matter here. `seen` are the numbers seen of each source.

    Of copies of an event the first counts, whichever nodes they come from.
    """
    sifted = sifted.sort_by([("node", "ascending"), ("offset", "ascending")])
    broken = sifted.filter(pc.invert(sifted["whole"])).select(["node", "offset"]).to_pylist()
    events = sifted.filter(sifted["whole"])
    is_new, seen_now, gappy = _first_copies(events, seen)
    reason = "an event needs source, seq >= 1, id, time and a finite point"
    return Intake(
        fresh=events.filter(pa.array(is_new)),
        duplicates=int(np.count_nonzero(~is_new)) - len(gappy),
        seen=seen_now,
        set_aside=[*(SetAside(row["node"], row["offset"], reason) for row in broken), *gappy],
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
    nodes, names = (events[name].combine_chunks().dictionary_encode() for name in ("home", "entity"))
    pairs = nodes.indices.to_numpy() * np.int64(len(names.dictionary)) + names.indices.to_numpy()
    seqs = events["seq"].to_numpy()
    order = np.argsort(pairs, kind="stable")
    starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        node, name = divmod(int(pairs[rows[0]]), len(names.dictionary))
        source = Source(nodes.dictionary[node].as_py(), names.dictionary[name].as_py())
        ranges, fresh = seen.get(source, Ranges()).merge(seqs[rows].tolist())
        if ranges.gaps > MOST_GAPS:
            reason = f"the numbers of {source.name} have more than {MOST_GAPS} gaps: number events densely"
            extra = events.select(["node", "offset"]).take(pa.array(rows[np.array(fresh)])).to_pylist()
            refused += [SetAside(row["node"], row["offset"], reason) for row in extra]
            continue
        is_new[rows] = fresh
        if any(fresh):
            changed[source] = ranges
    return is_new, changed, refused
