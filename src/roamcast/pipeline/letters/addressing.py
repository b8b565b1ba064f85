"""Addressing: events go, with their matches, to the letter shards of their receivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.bodies import LINK
from roamcast.pipeline.letters.context import ShardTables
from roamcast.pipeline.schemas import ADDRESSED_SCHEMA, PENDING_SCHEMA
from roamcast.pipeline.state.hashing import Hashes, hash_rows, shard_of_hashes, shards_of
from roamcast.pipeline.state.lookups import Integers, KeyRows, TableLookup, Truths
from roamcast.pipeline.tasks.match import to_lists

__all__ = ["LARGEST_PORTION", "LARGEST_TEXT", "address_letters", "address_matches"]

LARGEST_PORTION: Final = 100_000
"""Letters that are made at a time."""
LARGEST_TEXT: Final = 64 << 20
"""Bytes of the events in letters that are made at a time."""

_OF_EVENT: Final = ["node", "offset", "time", "event"]


class _Matches(NamedTuple):
    """Pairs of an event and a row of `lookup`, and the receiver of that row."""

    lookup: TableLookup
    event: Integers
    row: Integers
    receiver: Hashes
    is_link: Truths

    @classmethod
    def of(cls, events: pa.Table, name: str, lookup: TableLookup) -> _Matches:
        """The matches in a column of MATCHED_SCHEMA. A link gets only events of sources of its node, each once."""
        lists = events[name].combine_chunks()
        event = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy())
        row = lists.flatten().to_numpy()
        distinct, inverse = np.unique(row, return_inverse=True)
        receivers = lookup.take(distinct, ("node", "subscriber")).combine_chunks()
        names = receivers["subscriber"].combine_chunks()
        is_link = pc.starts_with(names, LINK).to_numpy(zero_copy_only=False)[inverse]
        matches = cls(lookup, event, row, hash_rows([names])[inverse], is_link)
        links = np.flatnonzero(is_link)
        if not len(links):
            return matches
        nodes, homes = receivers["node"].take(pa.array(inverse[links])), events["home"].take(pa.array(event[links]))
        links = links[pc.equal(nodes, homes).to_numpy()]
        code = names.dictionary_encode().indices.to_numpy()[inverse[links]]
        _, first = np.unique(event[links] * np.int64(len(names)) + code, return_index=True)
        return matches.take(np.sort(np.concatenate([np.flatnonzero(~is_link), links[first]])))

    def take(self, at: Integers) -> _Matches:
        return _Matches(self.lookup, self.event[at], self.row[at], self.receiver[at], self.is_link[at])


def address_letters(letters: pa.Table, shards: int) -> pa.Table:
    """Rows of ADDRESSED_SCHEMA for letters that are complete but for their numbers."""
    shard = shards_of([letters["receiver"].combine_chunks()], shards)
    columns: dict[str, Any] = {name: letters[name] for name in PENDING_SCHEMA.names}
    columns |= {"shard": pa.array(shard, pa.int32()), "bucket": pa.array(np.zeros(len(shard)), pa.int32())}
    return _addressed(columns, len(shard))


def address_matches(events: pa.Table, tables: ShardTables, shards: int) -> pa.Table:
    """Rows of ADDRESSED_SCHEMA for events with matches (MATCHED_SCHEMA): one for each shard with receivers, or more."""
    lookups = {"subscriptions": tables.subscriptions, "bindings": tables.bindings}
    matches = {name: _Matches.of(events, name, lookup) for name, lookup in lookups.items()}
    event, receiver, is_link = (
        np.concatenate([getattr(each, column) for each in matches.values()])
        for column in ("event", "receiver", "is_link")
    )
    shard = shard_of_hashes(receiver, shards)
    bucket = _buckets(events["event"], event * shards + shard, shards, receiver, list(matches.values()))
    bucket = np.where(is_link, 0, 1 + bucket)
    buckets = int(bucket.max(initial=0)) + 1
    groups, inverse = np.unique((event * shards + shard) * buckets + bucket, return_inverse=True)
    origin, count = groups // buckets // shards, len(groups)
    columns: dict[str, Any] = {name: events[name].take(pa.array(origin)) for name in _OF_EVENT}
    columns["attributes"] = events["attributes"].take(pa.array(origin, mask=groups % buckets != 0))
    columns["shard"] = pa.array(groups // buckets % shards, pa.int32())
    columns["bucket"] = pa.array(groups % buckets, pa.int32())
    ends = np.cumsum([len(each.row) for each in matches.values()])
    for (name, each), rows in zip(matches.items(), np.split(inverse, ends[:-1]), strict=True):
        order = np.lexsort((each.row, rows))
        columns[name] = to_lists(KeyRows(rows[order], each.row[order]), np.arange(count), count)
    return _addressed(columns, count)


def _addressed(columns: Mapping[str, Any], count: int) -> pa.Table:
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in ADDRESSED_SCHEMA]
    return pa.table(arrays, schema=ADDRESSED_SCHEMA)


def _buckets(
    texts: pa.ChunkedArray, group: Integers, shards: int, receiver: Hashes, matches: Sequence[_Matches]
) -> Integers:
    """Divide the matches of an event in a shard, which are a `group`, if they are too many to be served at a time.

    By receiver; those of a receiver who has too many by subscription, in the order in which letters are numbered.
    """
    groups, group, count = np.unique(group, return_inverse=True, return_counts=True)
    text = pc.fill_null(pc.binary_length(texts), 0).to_numpy()[groups // shards]
    most = np.clip(LARGEST_TEXT // np.maximum(text, 1), 1, LARGEST_PORTION)
    bucket = np.zeros(len(group), np.int64)
    at = np.flatnonzero((count > most)[group])
    if not len(at):
        return bucket
    group, size = group[at], most[group[at]]
    names, name = np.unique(receiver[at], return_inverse=True)
    _, name, count = np.unique(group * len(names) + name, return_inverse=True, return_counts=True)
    rank = np.zeros(len(at), np.int64)
    several = np.flatnonzero(count[name] > size)
    if len(several):
        rank[several] = np.unique(_ids(matches, at[several]), return_inverse=True)[1]
    order = np.lexsort((rank, name))  # and by group
    place, group, name, rank = np.arange(len(at)), group[order], name[order], rank[order]
    is_first = np.diff(group, prepend=-1) != 0
    may_begin = (np.diff(name, prepend=-1) != 0) | (np.diff(rank, prepend=-1) != 0)
    begin, unit = (np.maximum.accumulate(np.where(each, place, 0)) for each in (is_first, may_begin))
    bucket[at[order]] = (unit - begin) // size[order]
    return bucket


def _ids(matches: Sequence[_Matches], at: Integers) -> Any:
    """The ids of the subscriptions of some of these matches, which are counted across the tables."""
    ends = np.cumsum([len(each.row) for each in matches])
    rows = np.concatenate([each.row for each in matches])[at]
    table = np.searchsorted(ends, at, "right")
    ids = np.empty(len(at), np.object_)
    for number, each in enumerate(matches):
        here = np.flatnonzero(table == number)
        ids[here] = each.lookup.take(rows[here], ("id",))["id"].to_numpy()
    return ids
