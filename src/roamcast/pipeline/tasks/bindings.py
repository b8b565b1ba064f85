"""Plan bind in the executors: events meet the bindings of their source that were valid when they happened."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.lacl.columns import BoolArray
from roamcast.pipeline.state.lookups import Ends, Found, Integers, Lookups
from roamcast.pipeline.tasks.event_columns import Facts, on_of

__all__ = ["join"]

_NEVER = np.iinfo(np.int64).max


def join(facts: Facts, bindings: Lookups) -> Found:
    """Pairs of rows, of events and of bindings, that belong together, ordered by event.

    An event sees what its node had journalled before it. Of that a binding counts if it had begun when the event
    happened, and had not ended; and if its `On` holds. All of it is told by the records alone, so that a batch cut
    elsewhere makes the same pairs. Of what other nodes have journalled an event sees what came up to its batch.
    """
    events = facts.events
    ends = Ends(events["offset"].to_numpy(), events["time"].cast(pa.int64()).to_numpy())
    found = bindings.find(("home", "source"), (events["home"], events["entity"]), ends)
    if not len(found.key):
        return found
    rows = bindings.take(found.row, ("node", "since", "begin", "on", "until", "end", "final"))
    offset, time = ends.offset[found.key], ends.time[found.key]
    since, begin = rows["since"].to_numpy(), rows["begin"].to_numpy()
    until, end = (pc.fill_null(rows[name], _NEVER).to_numpy() for name in ("until", "end"))
    over = pc.fill_null(rows["final"], False).to_numpy() | (time >= end)
    here = pc.equal(rows["node"], events["node"].take(pa.array(found.key))).to_numpy()
    seen = np.where(here, (since < offset) & ((offset < until) | ~over), ~over)
    valid = seen & (begin <= time)
    kept = np.flatnonzero(valid)
    kept = kept[_satisfied(facts, found.key[kept], rows["on"].take(pa.array(kept)))]
    return Found(found.key[kept], found.row[kept])


def _satisfied(facts: Facts, events: Integers, conditions: pa.ChunkedArray) -> BoolArray:
    """Whether each event satisfies the condition beside it; none is always satisfied."""
    encoded = conditions.combine_chunks().dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy()
    truths = np.ones(len(events), np.bool_)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-2))
    for pairs in np.split(order, starts[1:]):
        if len(pairs) and codes[pairs[0]] >= 0:
            condition = on_of(encoded.dictionary[int(codes[pairs[0]])].as_py())
            truths[pairs] = facts.satisfy(condition, events[pairs])
    return truths
