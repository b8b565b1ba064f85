"""`Every`: of the letters under a subscription, those that come too soon after the last one are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.pipeline.schemas import LAST_SENT
from roamcast.pipeline.state.changes import SubscriptionKey
from roamcast.pipeline.state.lookups import TableLookup

__all__ = ["Throttle"]


class Throttle:
    """Drops letters of one batch, portion after portion.

    Periods are measured by the times of events. `removed` has the offset at which a subscription was removed: a later
    one with the same name starts a new period.
    """

    def __init__(self, removed: Mapping[SubscriptionKey, int]) -> None:
        self._removed = dict(removed)  # without those that have started a new period
        self._changed: dict[SubscriptionKey, int | None] = {}

    def keep(self, pending: pa.Table, last_sent: TableLookup) -> pa.Table:
        """The letters that do not come too soon. `pending` is in order; `last_sent` has what `changes` returned."""
        limited = np.flatnonzero(pc.is_valid(pending["every"]).to_numpy())
        if not len(limited):
            return pending
        rows = pending.take(pa.array(limited))
        columns = (rows[name].to_pylist() for name in ("office", "subscription", "receiver"))
        keys: list[SubscriptionKey] = list(zip(*columns, strict=True))
        before = _last(last_sent, keys)
        last: dict[SubscriptionKey, int | None] = dict(before)
        values = (rows[name].to_pylist() for name in ("node", "offset", "time", "every"))
        keep = np.ones(pending.num_rows, np.bool_)
        for row, key, node, offset, time, every in zip(limited.tolist(), keys, *values, strict=True):
            if (removal := self._removed.get(key)) is not None and (node != key[0] or offset > removal):
                del self._removed[key]
                last[key] = None
            previous = last.get(key)
            if previous is not None and abs(time - previous) < every:
                keep[row] = False
            else:
                last[key] = time
        self._changed = {key: time for key, time in last.items() if time != before.get(key)}
        return pending.filter(pa.array(keep))

    def changes(self) -> pa.Table:
        """The rows of LAST_SENT that the last call of `keep` changes."""
        changed, self._changed = self._changed, {}
        return _rows(changed)

    def end(self, last_sent: TableLookup) -> pa.Table:
        """The rows of LAST_SENT of subscriptions that were removed for good."""
        return _rows(dict.fromkeys(_last(last_sent, self._removed)))


def _last(last_sent: TableLookup, keys: Iterable[SubscriptionKey]) -> dict[SubscriptionKey, int]:
    """The time of the last event that was sent, for those of these subscriptions that have one."""
    distinct = list(dict.fromkeys(keys))
    if not distinct:
        return {}
    columns = [pa.array(column, pa.string()) for column in zip(*distinct, strict=True)]
    pairs = last_sent.find(LAST_SENT.keys, columns)
    times = last_sent.take(pairs.row, ("last",))["last"].to_pylist()
    return {distinct[key]: time for key, time in zip(pairs.key.tolist(), times, strict=True) if time is not None}


def _rows(changed: Mapping[SubscriptionKey, int | None]) -> pa.Table:
    rows = [dict(zip(LAST_SENT.schema.names, (*key, last), strict=True)) for key, last in changed.items()]
    return pa.Table.from_pylist(rows, LAST_SENT.schema)
