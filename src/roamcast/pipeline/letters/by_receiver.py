"""The second of two steps from matches to letters: what depends on the receiver of a letter alone.

The letters of a receiver are put in order, those that come too soon under `Every` are dropped, and the others get
dense numbers. Many letters are made in portions, each of which continues where the one before it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.pipeline.letters.by_source import LARGEST_PORTION, LARGEST_TEXT
from roamcast.pipeline.letters.context import LetterContext, LetterReport, ShardTables
from roamcast.pipeline.letters.numbers import journal_ranks, number_letters, order_letters
from roamcast.pipeline.letters.pending import join_links, letters_of_bindings, letters_of_matches
from roamcast.pipeline.schemas import LAST_SENT, PENDING_SCHEMA, RECEIVERS
from roamcast.pipeline.state.changes import SubscriptionKey
from roamcast.pipeline.state.lookups import EndLimits, Integers, KeyLookup, Truths

__all__ = ["LetterSink", "Throttle", "make_letters"]

LetterSink = Callable[[str, pa.Table], None]
"""Takes an office and letters to it (LETTERS_SCHEMA). Those of a receiver come in the order of their numbers."""

FindLive = Callable[[Sequence[SubscriptionKey]], Collection[SubscriptionKey]]
"""Says which of these subscriptions exist after the batch."""


class Throttle:
    """`Every`: drops letters of one batch that come too soon after the last one, portion after portion.

    Periods are measured by the times of events. `removed` has the offset at which a subscription was removed: a later
    one with the same name starts a new period. `left` are subscriptions that were removed earlier, and have got letters
    until now.
    """

    def __init__(self, removed: Mapping[SubscriptionKey, int], left: Collection[SubscriptionKey] = ()) -> None:
        self._removed = dict(removed)  # without those that have started a new period
        self._ended = [*removed, *left]

    def keep(self, pending: pa.Table, last_sent: KeyLookup) -> tuple[pa.Table, pa.Table]:
        """The letters that do not come too soon, and the rows of LAST_SENT that change.

        `pending` is in order; `last_sent` has what earlier calls have changed.
        """
        limited = np.flatnonzero(pc.is_valid(pending["every"]).to_numpy())
        if not len(limited):
            return pending, _rows({})
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
        changed = {key: time for key, time in last.items() if time != before.get(key)}
        return pending.filter(pa.array(keep)), _rows(changed)

    def end(self, last_sent: KeyLookup, find_live: FindLive) -> pa.Table:
        """The rows of LAST_SENT of subscriptions that were removed for good.

        A letter with an event of another node may have started a new period though there is no later subscription.
        """
        sent = _last(last_sent, self._ended)
        live = find_live([key for key in sent if key not in self._removed])
        return _rows(dict.fromkeys(key for key in sent if key not in live))


def make_letters(addressed: pa.Table, context: LetterContext, tables: ShardTables, sink: LetterSink) -> LetterReport:
    """Make the letters of some shards of receivers, and pass them to `sink`.

    `addressed` has all rows of ADDRESSED_SCHEMA for these shards. The numbers of the receivers, and when letters under
    `Every` were sent, are added to the tables.
    """
    counters = Counter({"letters": 0, "throttled": 0})
    throttle = Throttle(context.removed, context.left)
    for rows in _portions(addressed):
        pending = order_letters(join_links(_expand(rows, tables)))
        kept, last_sent = throttle.keep(pending, tables.lookup(LAST_SENT))
        letters = number_letters(kept, lambda offices, receivers: _last_numbers(tables, offices, receivers))
        for office, table in letters.by_office.items():
            sink(office, table)
        tables.add(LAST_SENT, last_sent, _of_removed)
        tables.add(RECEIVERS, letters.receivers)
        counters.update(letters=kept.num_rows, throttled=pending.num_rows - kept.num_rows)
    ended = throttle.end(tables.lookup(LAST_SENT), lambda keys: _find_live(tables, keys))
    tables.add(LAST_SENT, ended, _of_removed)
    return LetterReport(tables.stacks, dict(counters))


def _find_live(tables: ShardTables, keys: Sequence[SubscriptionKey]) -> set[SubscriptionKey]:
    """Those of these subscriptions that exist, or are bound, after the batch."""
    if not keys:
        return set()
    nodes, ids, _ = (pa.array(column, pa.string()) for column in zip(*keys, strict=True))
    limits = EndLimits.live_only(len(keys))
    live: set[SubscriptionKey] = set()
    for lookup in (tables.subscriptions, tables.bindings):
        pairs = lookup.find(("node", "id"), (nodes, ids), limits, scan=True)
        rows = lookup.take(pairs.row, ("node", "id", "subscriber")).to_pylist()
        live.update((row["node"], row["id"], row["subscriber"]) for row in rows)
    return live


def _portions(addressed: pa.Table) -> Iterator[pa.Table]:
    """Rows whose letters are made together, in the order in which letters are numbered.

    An event ends a portion that has become too large. What brings an earlier event comes first.
    """
    if not addressed.num_rows:
        return
    lists = [pc.fill_null(pc.list_value_length(addressed[name]), 0) for name in ("subscriptions", "bindings")]
    count = np.maximum(pc.add(*lists).to_numpy().astype(np.int64), 1)
    texts = [pc.fill_null(pc.binary_length(addressed[name]), 0).to_numpy() for name in ("event", "attributes")]
    text = count * (texts[0] + texts[1])
    if count.sum() <= LARGEST_PORTION and text.sum() <= LARGEST_TEXT:
        yield addressed
        return
    is_later = ~pc.fill_null(addressed["first"], False).to_numpy()
    place = [is_later, journal_ranks(addressed["node"]), addressed["offset"].to_numpy()]
    bucket = pc.fill_null(addressed["bucket"], 0).to_numpy()
    keys = np.stack([bucket, *reversed(place)])
    order = np.lexsort(keys)
    may_begin = (np.diff(keys[:, order], prepend=-1) != 0).any(axis=0)
    begin, letters, size = 0, 0, 0
    for at, (row, is_cut) in enumerate(zip(order.tolist(), may_begin.tolist(), strict=True)):
        if is_cut and at > begin and (letters + count[row] > LARGEST_PORTION or size + text[row] > LARGEST_TEXT):
            yield addressed.take(pa.array(order[begin:at]))
            begin, letters, size = at, 0, 0
        letters, size = letters + count[row], size + text[row]
    yield addressed.take(pa.array(order[begin:]))


def _expand(rows: pa.Table, tables: ShardTables) -> pa.Table:
    """The pending letters of rows of ADDRESSED_SCHEMA."""
    is_event = pc.is_null(rows["receiver"])
    events = rows.filter(is_event)
    return pa.concat_tables(
        [
            letters_of_matches(events, tables.subscriptions),
            letters_of_bindings(events, tables.bindings),
            rows.filter(pc.invert(is_event)).select(PENDING_SCHEMA.names),
        ]
    )


def _last_numbers(tables: ShardTables, offices: pa.Array, receivers: pa.Array) -> Integers:
    lookup = tables.lookup(RECEIVERS)
    last = np.zeros(len(offices), np.int64)
    pairs = lookup.find(RECEIVERS.keys, (offices, receivers))
    last[pairs.key] = lookup.take(pairs.row, ("last",))["last"].to_numpy()
    return last


def _of_removed(rows: pa.Table) -> Truths:
    """Rows of LAST_SENT of subscriptions that were removed."""
    removed: Truths = pc.is_null(rows["last"]).to_numpy()
    return removed


def _last(last_sent: KeyLookup, keys: Iterable[SubscriptionKey]) -> dict[SubscriptionKey, int]:
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
