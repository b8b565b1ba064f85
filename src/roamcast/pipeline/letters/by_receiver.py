"""The second of two steps from matches to letters: what depends on the receiver of a letter alone.

The letters of a receiver are put in order, those that come too soon under `Every` are dropped, and the others get
dense numbers. Many letters are made in portions, each of which continues where the one before it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.pipeline.letters.by_source import LARGEST_PORTION, LARGEST_TEXT
from roamcast.pipeline.letters.context import LetterContext, LetterReport, ShardTables
from roamcast.pipeline.letters.numbers import journal_ranks, number_letters, order_letters
from roamcast.pipeline.letters.pending import join_links, letters_of_bindings, letters_of_matches
from roamcast.pipeline.letters.throttle import Throttle
from roamcast.pipeline.schemas import LAST_SENT, PENDING_SCHEMA, RECEIVERS
from roamcast.pipeline.state.lookups import Integers, TableLookup, Truths

__all__ = ["LetterSink", "make_letters"]

LetterSink = Callable[[str, pa.Table], None]
"""Takes an office and letters to it (LETTERS_SCHEMA). Those of a receiver come in the order of their numbers."""


def make_letters(addressed: pa.Table, context: LetterContext, tables: ShardTables, sink: LetterSink) -> LetterReport:
    """Make the letters of some shards of receivers, and pass them to `sink`.

    `addressed` has all rows of ADDRESSED_SCHEMA for these shards. The numbers of the receivers, and when letters under
    `Every` were sent, are added to the tables.
    """
    counters = Counter({"letters": 0, "throttled": 0})
    throttle = Throttle(context.removed)
    for rows in _portions(addressed):
        pending = order_letters(join_links(_expand(rows, tables)))
        kept = throttle.keep(pending, tables.lookup(LAST_SENT))
        letters = number_letters(kept, lambda offices, receivers: _last_numbers(tables, offices, receivers))
        for office, table in letters.by_office.items():
            sink(office, table)
        tables.add(LAST_SENT, throttle.changes(), _of_removed)
        tables.add(RECEIVERS, letters.receivers)
        counters.update(letters=kept.num_rows, throttled=pending.num_rows - kept.num_rows)
    tables.add(LAST_SENT, throttle.end(tables.lookup(LAST_SENT)), _of_removed)
    return LetterReport(tables.stacks, dict(counters))


def _portions(addressed: pa.Table) -> Iterator[pa.Table]:
    """Rows whose letters are made together, in the order in which letters are numbered.

    An event ends a portion that has become too large. What brings an earlier event comes first.
    """
    if not addressed.num_rows:
        return
    lists = [pc.fill_null(pc.list_value_length(addressed[name]), 0) for name in ("subscriptions", "bindings")]
    count = np.maximum(pc.add(*lists).to_numpy(), 1)
    text = count * pc.fill_null(pc.binary_length(addressed["event"]), 0).to_numpy()
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
    lookup: TableLookup = tables.lookup(RECEIVERS)
    last = np.zeros(len(offices), np.int64)
    pairs = lookup.find(RECEIVERS.keys, (offices, receivers))
    last[pairs.key] = lookup.take(pairs.row, ("last",))["last"].to_numpy()
    return last


def _of_removed(rows: pa.Table) -> Truths:
    """Rows of LAST_SENT of subscriptions that were removed."""
    removed: Truths = pc.is_null(rows["last"]).to_numpy()
    return removed
