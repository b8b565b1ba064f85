"""The first of two steps from matches to letters: what depends on the source of an event, and on nothing of receivers.

Copies are dropped, the newest event of each source is kept, and each event is addressed to the shards of its receivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.bodies import LINK
from roamcast.journal.records import EVENT, FORWARDED, LAST_KNOWN
from roamcast.match.index.rows import sample_evenly
from roamcast.pipeline.letters.context import LetterContext, LetterReport, ShardTables, SourceKey
from roamcast.pipeline.letters.pending import letters_of_initial_bindings, letters_of_last_known
from roamcast.pipeline.schemas import ADDRESSED_SCHEMA, EXPIRED_BINDINGS, PENDING_SCHEMA, SOURCES, StateTable
from roamcast.pipeline.state.control import DeadLetter, Row
from roamcast.pipeline.state.hashing import Hashes, hash_rows, shard_of_hashes, shards_of
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.lookups import Integers, KeyLookup, KeyRows, TableLookup, Truths
from roamcast.pipeline.state.partitioning import MatchSample
from roamcast.pipeline.state.parts import newest_rows
from roamcast.pipeline.tasks.match import to_lists
from roamcast.ranges import Ranges

__all__ = [
    "LARGEST_PORTION",
    "LARGEST_TEXT",
    "DedupedEvents",
    "address_events",
    "address_matches",
    "dedupe_events",
    "find_of_sources",
]

LARGEST_PORTION: Final = 100_000
"""Letters that are made at a time."""
LARGEST_TEXT: Final = 64 << 20
"""Bytes of the events in letters that are made at a time."""

MAX_GAPS: Final = 10_000
"""The numbers seen of a source are kept for ever. A source that leaves a gap at each event would slow every batch."""

_INCOMPLETE: Final = "an event needs source, seq >= 1, id, time and a finite point"
_LATE: Final = "the event is too late: the bindings of its source at that time have been deleted"
_OF_EVENT: Final = ["node", "offset", "time", "event"]
_NEWEST: Final = ("node", "source", "seq", "time", "event", "attributes")


@dataclass(frozen=True, slots=True)
class DedupedEvents:
    """`fresh` are the events that count, ordered by node and offset. `seen` has the sources with new events.

    `last_known` are the events of this kind: they were published before somebody wanted them. `copies` are the nodes
    and offsets of those that were dropped because they are duplicates.
    """

    fresh: pa.Table
    last_known: pa.Table
    copies: pa.Table
    seen: Mapping[SourceKey, Ranges]
    dead_letters: list[DeadLetter] = field(default_factory=list)

    @property
    def duplicates(self) -> int:
        return int(self.copies.num_rows)


def address_events(
    matched: pa.Table, context: LetterContext, tables: ShardTables, initial: Sequence[Row]
) -> tuple[pa.Table, LetterReport]:
    """Rows of ADDRESSED_SCHEMA for the matched events of some sources (MATCHED_SCHEMA), and what was counted.

    `initial` are the new bindings to these sources that also bring the last event. The numbers seen of the sources, and
    their newest events, are added to the tables.
    """
    sources, bindings = tables.lookup(SOURCES), tables.bindings
    events = dedupe_events(matched, _seen(sources, sources_of(matched)))
    earlier = pa.concat_tables([events.fresh, events.last_known])
    letters = pa.concat_tables(
        [
            letters_of_initial_bindings(initial, earlier, sources),
            letters_of_last_known(events.last_known, bindings, context.initial, sources),
        ]
    )
    addressed = [_address_letters(letters, context.shards), address_matches(events.fresh, tables, context.shards)]
    late = _late_events(events.fresh, tables.lookup(EXPIRED_BINDINGS))
    tables.add(SOURCES, _source_rows(events, sources))
    report = LetterReport(
        dict(tables.stacks),
        {"events": events.fresh.num_rows, "duplicates_dropped": events.duplicates},
        copies=_offsets(events.copies),
        dead_letters=events.dead_letters,
        late=late,
        load=LoadRows.of_matched(matched),
        scanned=pc.sum(matched["postings_scanned"]).as_py() or 0,
        matches=pc.sum(pc.list_value_length(matched["subscriptions"])).as_py() or 0,
        sample=_sample(matched, context.sampled, context.sampled_matches),
    )
    return pa.concat_tables(addressed), report


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
        copies=_without(events.filter(pa.array(is_local)).filter(pa.array(~is_first)), refused),
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


def _without(events: pa.Table, refused: Sequence[DeadLetter]) -> pa.Table:
    """The nodes and offsets of events, but for those that were refused."""
    rows = events.select(["node", "offset"])
    if not refused or not rows.num_rows:
        return rows
    names = {(letter.node, letter.offset) for letter in refused}
    return rows.filter(pa.array([(row["node"], row["offset"]) not in names for row in rows.to_pylist()]))


def _offsets(events: pa.Table) -> dict[str, list[int]]:
    """The offsets of events by node."""
    offsets: dict[str, list[int]] = {}
    for node, offset in zip(events["node"].to_pylist(), events["offset"].to_pylist(), strict=True):
        offsets.setdefault(node, []).append(offset)
    return offsets


def _dead_letters(events: pa.Table, reason: str) -> list[DeadLetter]:
    rows = events.select(["node", "offset"]).to_pylist()
    return [DeadLetter(row["node"], row["offset"], reason) for row in rows]


def _seen(sources: KeyLookup, keys: Sequence[SourceKey]) -> dict[SourceKey, Ranges]:
    """The numbers seen of these sources in earlier batches."""
    return {key: Ranges.from_text(text) for key, text in find_of_sources(sources, SOURCES, "seen", keys).items()}


def find_of_sources(
    lookup: KeyLookup, table: StateTable, column: str, keys: Sequence[SourceKey]
) -> dict[SourceKey, Any]:
    """What a table with rows of sources has in a column, for those of these sources that it has."""
    if not keys:
        return {}
    pairs = lookup.find(table.keys, [pa.array(part, pa.string()) for part in zip(*keys, strict=True)])
    values = lookup.take(pairs.row, (column,))[column].to_pylist()
    return {keys[number]: value for number, value in zip(pairs.key.tolist(), values, strict=True)}


def _late_events(fresh: pa.Table, expired: KeyLookup) -> list[DeadLetter]:
    """Events that matched no binding, and whose source had bindings at that time that have been deleted.

    Plan match has processed them; they are dead letters of plan bind only.
    """
    unbound = fresh.filter(pc.equal(pc.list_value_length(fresh["bindings"]), 0))
    ends = find_of_sources(expired, EXPIRED_BINDINGS, "end", sources_of(unbound))
    if not ends:
        return []
    columns = (unbound[name].to_pylist() for name in ("node", "offset", "home", "entity", "time"))
    return [
        DeadLetter(node, offset, _LATE)
        for node, offset, home, entity, time in zip(*columns, strict=True)
        if time < ends.get(SourceKey(home, entity), time)
    ]


def _source_rows(events: DedupedEvents, sources: KeyLookup) -> pa.Table:
    """The rows of sources with new events: the numbers seen, and the newest event."""
    names = list(events.seen)
    keys = [pa.array([name[part] for name in names], pa.string()) for part in range(2)]
    stored = sources.take(sources.find(SOURCES.keys, keys).row, _NEWEST)
    fresh = pa.concat_tables([events.fresh, events.last_known])
    fresh = fresh.select(["home", "entity", *_NEWEST[2:]]).rename_columns(_NEWEST)
    candidates = pa.concat_tables([stored, fresh])
    candidates = candidates.filter(pc.is_valid(candidates["event"])).sort_by([("seq", "ascending")])
    newest = {SourceKey(row["node"], row["source"]): row for row in newest_rows(SOURCES, candidates).to_pylist()}
    rows = [
        {**newest.get(name, {}), "node": name.home, "source": name.name, "seen": ranges.to_text()}
        for name, ranges in events.seen.items()
    ]
    return pa.Table.from_pylist(rows, SOURCES.schema)


def _sample(matched: pa.Table, every: int, most: int) -> list[MatchSample]:
    """A regular sample of the events that matched, each with a limited number of its matches."""
    if not every:
        return []
    chosen = matched.filter(pc.greater(pc.list_value_length(matched["subscriptions"]), 0))
    chosen = chosen.filter(pa.array(chosen["offset"].to_numpy() % every == 0))
    sample = []
    events = (chosen[name].to_pylist() for name in ("node", "offset"))
    for node, offset, rows in zip(*events, chosen["subscriptions"], strict=True):
        some = sample_evenly(len(rows), most)
        sample.append(MatchSample(node, offset, len(rows), rows.values.to_numpy()[some].tolist()))
    return sample


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


def _address_letters(letters: pa.Table, shards: int) -> pa.Table:
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
