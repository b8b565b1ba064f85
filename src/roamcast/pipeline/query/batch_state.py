"""The batch state: what the driver carries from batch to batch.

`prepare` applies the control records of a batch, `compute_result` turns its matched events into letters and the next
state, `commit` publishes that state. Until then the batch has no effect and may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.term_statistics import TermStatistics
from roamcast.model import NO_END
from roamcast.pipeline.letters.dedupe import DedupedEvents, SourceKey, dedupe_events, sources_of
from roamcast.pipeline.letters.numbers import NumberedLetters, number_letters, order_letters
from roamcast.pipeline.letters.pending import (
    LastSent,
    join_links,
    letters_of_bindings,
    letters_of_initial_bindings,
    letters_of_last_known,
    letters_of_matches,
    throttle,
)
from roamcast.pipeline.schemas import (
    BINDINGS,
    EXPIRED_BINDINGS,
    LAST_SENT,
    RECEIVERS,
    SOURCES,
    SUBSCRIPTIONS,
    StateTable,
)
from roamcast.pipeline.state.changes import ControlChanges, apply_records_in_bulk, drain, drained_through
from roamcast.pipeline.state.control import ControlRecords, DeadLetter
from roamcast.pipeline.state.index_state import IndexState, assign_handles
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.lookups import Integers, TableLookup, Truths
from roamcast.pipeline.state.manifests import Manifest, StateFolder
from roamcast.pipeline.state.moving_regions import MovingRegionState, MovingRegionsUpdate, read_positions
from roamcast.pipeline.state.partitioning import (
    MEASURED,
    BatchReport,
    PartitioningSettings,
    PartitioningState,
    ShardPolicy,
)
from roamcast.pipeline.state.parts import Obsolete, Part, newest_rows
from roamcast.pipeline.tasks.context import MatchContext
from roamcast.ranges import Ranges

__all__ = ["COUNTERS", "BatchResult", "BatchSettings", "BatchState", "PreparedBatch"]

COUNTERS: Final = (
    "events", "duplicates_dropped", "dead_letters", "late", "throttled", "letters", "subscriptions", "bindings",
)  # fmt: skip

_LATE: Final = "the event is too late: the bindings of its source at that time have been deleted"


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How batches are processed.

    `binding_history`: how long ended bindings are kept for late events, in microseconds of their node's clock.
    `workers`: number of shards of the index; 0: each worker has the whole index. After every `rebalance_events` events
    the load of workers is balanced, if the partitioner finds it uneven.
    """

    binding_history: int = 3600 * 1_000_000
    workers: int = 0
    rebalance_events: int = 100_000
    partitioning: PartitioningSettings = field(default_factory=PartitioningSettings)


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch whose control records are applied. `expired`: when deleted bindings ended, by source.

    `policy` has decided where its subscriptions are, and learns from it once.
    """

    context: MatchContext
    index: IndexState
    policy: ShardPolicy | None
    regions: MovingRegionsUpdate
    changes: ControlChanges
    expired: dict[SourceKey, int]


class BatchResult(NamedTuple):
    """The letters of a batch and the state after it. `postings_scanned` and `matches` are totals of plan match.

    `load` is that of the shards of a partitioned index.
    """

    letters: NumberedLetters
    dead_letters: list[DeadLetter]
    manifest: Manifest
    regions: MovingRegionState
    events: DedupedEvents
    expired: dict[SourceKey, int]
    policy: ShardPolicy | None
    load: LoadRows
    postings_scanned: int
    matches: int


class BatchState:
    """The state between two batches. What it says of sources and receivers is looked up for those of a batch."""

    def __init__(self, folder: StateFolder, manifest: Manifest, settings: BatchSettings | None = None) -> None:
        self.manifest = manifest
        self._settings = settings or BatchSettings()
        self._folder = folder
        self._term_statistics = TermStatistics()  # of events since the start; it only affects speed
        self._policy: ShardPolicy | None = None  # of the manifest, unless a batch has it
        self._regions = folder.open_regions(manifest)

    def prepare(self, control: ControlRecords, batch: int) -> PreparedBatch:
        """Apply the control records of a batch. The context says what its events are matched with."""
        for terms in control.terms:
            self._term_statistics.observe(terms)
        known = self._folder.open_rows(self.manifest)
        changes = apply_records_in_bulk(control.records, batch, known)
        drained = drained_through(control.records)
        changes = drain(changes, drained, self.manifest.index.leaving, batch, known)
        rows = assign_handles(changes.subscriptions, self.manifest.index.next_handle)
        positions, bad_positions = read_positions(control.records)
        regions = self._regions.update(rows, positions, drained)
        changes.dead_letters.extend([*bad_positions, *regions.dead_letters])
        updater, settings = self._folder.updater, self._settings
        policy, self._policy = self._policy, None  # an attempt that fails leaves none, and the next one restores it
        index, policy = updater.reshard(self.manifest.index, settings.workers, settings.partitioning, known, policy)
        statistics = None if self._is_measured else self._term_statistics
        index = updater.update(index, rows, regions.boxes, known, policy, statistics)
        if policy is not None:
            index = _with_partitioning(index, policy.save_placement())
        expired: dict[SourceKey, int] = {}
        context = MatchContext(
            self._folder.folder,
            batch,
            self._push(SUBSCRIPTIONS, rows, partial(_left_before, batch)),
            self._push(BINDINGS, changes.bindings, partial(self._expire, changes, expired)),
            index.stack,
            regions.save(self._folder.segments),
            frozenset((row["home"], row["source"]) for row in changes.initial),
            sharded=index.sharded,
            units=settings.partitioning.compared_units if index.sharded else 0,
        )
        return PreparedBatch(context, index, policy, regions, changes, expired)

    def compute_result(self, prepared: PreparedBatch, matched: pa.Table) -> BatchResult:
        """Number the letters of a batch and compute the state after it.

        `matched` has MATCHED_SCHEMA: the events of the batch, as tasks matched them with the prepared context.
        """
        context, changes = prepared.context, prepared.changes
        events = dedupe_events(matched, self._seen(sources_of(matched)))
        late = self._late_events(events.fresh, prepared.expired)
        bindings, sources = context.open_bindings(), self._lookup(SOURCES)
        earlier = pa.concat_tables([events.fresh, events.last_known])
        pending = pa.concat_tables(
            [
                letters_of_matches(events.fresh, context.open_subscriptions()),
                letters_of_bindings(events.fresh, bindings),
                letters_of_initial_bindings(changes.initial, earlier, sources),
                letters_of_last_known(events.last_known, bindings, changes.initial, sources),
            ]
        )
        pending = order_letters(join_links(pending))
        kept, last_sent = throttle(pending, self._last_sent(pending, changes.removed), changes.removed)
        letters = number_letters(kept, self._last_numbers)
        dead_letters = sorted([*changes.dead_letters, *events.dead_letters])
        growth = {
            "events": events.fresh.num_rows,
            "duplicates_dropped": events.duplicates,
            "dead_letters": len(dead_letters),
            "late": len(late),
            "throttled": pending.num_rows - kept.num_rows,
            "letters": kept.num_rows,
            "subscriptions": changes.subscription_growth,
            "bindings": changes.binding_growth,
        }
        counters = {name: self.manifest.counters.get(name, 0) + growth[name] for name in COUNTERS}
        load = LoadRows.of_matched(matched)
        manifest = replace(
            self.manifest,
            batch=context.batch,
            tables={
                SUBSCRIPTIONS.name: context.subscriptions,
                BINDINGS.name: context.bindings,
                EXPIRED_BINDINGS.name: self._push(EXPIRED_BINDINGS, _expired_rows(prepared.expired)),
                SOURCES.name: self._push(SOURCES, self._source_rows(events)),
                LAST_SENT.name: self._push(LAST_SENT, _last_sent_rows(last_sent), _of_removed),
                RECEIVERS.name: self._push(RECEIVERS, letters.receivers),
            },
            index=self._learn(prepared, matched, load, counters["events"]),
            counters=counters,
            moving_regions=prepared.regions.regions.save(self._folder.segments),
        )
        scanned, matches = matched["postings_scanned"], pc.list_value_length(matched["subscriptions"])
        return BatchResult(
            letters,
            [*dead_letters, *late],
            manifest,
            prepared.regions.regions,
            events,
            prepared.expired,
            prepared.policy,
            load,
            *(pc.sum(counts).as_py() or 0 for counts in (scanned, matches)),
        )

    def commit(self, result: BatchResult) -> None:
        """Publish the state after a batch durably, and continue from it."""
        self._folder.publish(result.manifest)
        self.manifest = result.manifest
        self._policy = result.policy
        self._regions = result.regions

    def _seen(self, sources: Sequence[SourceKey]) -> dict[SourceKey, Ranges]:
        """The numbers seen of these sources in earlier batches."""
        found = self._find(SOURCES, "seen", sources)
        return {source: Ranges.from_text(text) for source, text in found.items()}

    def _late_events(self, fresh: pa.Table, expired: dict[SourceKey, int]) -> list[DeadLetter]:
        """Events that matched no binding, and whose source had bindings at that time that have been deleted.

        Plan match has processed them; they are dead letters of plan bind only. `expired` is what this batch deleted.
        """
        if not expired and not self.manifest.parts(EXPIRED_BINDINGS.name):
            return []
        unbound = fresh.filter(pc.equal(pc.list_value_length(fresh["bindings"]), 0))
        ends = self._find(EXPIRED_BINDINGS, "end", sources_of(unbound)) | expired
        columns = (unbound[name].to_pylist() for name in ("node", "offset", "home", "entity", "time"))
        return [
            DeadLetter(node, offset, _LATE)
            for node, offset, home, entity, time in zip(*columns, strict=True)
            if time < ends.get(SourceKey(home, entity), time)
        ]

    def _find(self, table: StateTable, column: str, sources: Sequence[SourceKey]) -> dict[SourceKey, Any]:
        """What a table with rows of sources has in a column, for those of these sources that it has."""
        if not sources or not self.manifest.parts(table.name):
            return {}
        lookup = self._lookup(table)
        pairs = lookup.find(table.keys, [pa.array(part, pa.string()) for part in zip(*sources, strict=True)])
        values = lookup.take(pairs.row, (column,))[column].to_pylist()
        return {sources[number]: value for number, value in zip(pairs.key.tolist(), values, strict=True)}

    def _last_numbers(self, offices: pa.Array, receivers: pa.Array) -> Integers:
        lookup, last = self._lookup(RECEIVERS), np.zeros(len(offices), np.int64)
        pairs = lookup.find(RECEIVERS.keys, (offices, receivers))
        last[pairs.key] = lookup.take(pairs.row, ("last",))["last"].to_numpy()
        return last

    def _lookup(self, table: StateTable) -> TableLookup:
        return self._folder.open_rows(self.manifest).lookup(table)

    def _push(self, table: StateTable, rows: pa.Table, obsolete: Obsolete | None = None) -> tuple[Part, ...]:
        return self._folder.parts.push(table, self.manifest.parts(table.name), rows, obsolete)

    @property
    def _is_measured(self) -> bool:
        """Whether decisions depend on the work of a search. Then the index must not depend on the term statistics."""
        return self._settings.workers > 0 and self._settings.partitioning.partitioner in MEASURED

    def _learn(self, prepared: PreparedBatch, matched: pa.Table, load: LoadRows, events: int) -> IndexState:
        """Let the policy learn from the batch, and balance the load if it is time to."""
        if prepared.policy is None:
            return prepared.index
        before, every = self.manifest.counters.get("events", 0), self._settings.rebalance_events
        is_due = events // every != before // every
        prepared.policy.end_batch(BatchReport(load, matched, prepared.context.open_subscriptions(), is_due))
        return _with_partitioning(prepared.index, prepared.policy.save())

    def _expire(self, changes: ControlChanges, expired: dict[SourceKey, int], rows: pa.Table) -> Truths:
        """Which bindings ended so long ago that they may be deleted. Their ends are noted in `expired`."""
        encoded = rows["node"].combine_chunks().dictionary_encode()
        history = self._settings.binding_history
        horizons = [changes.latest_binding_times.get(node, 0) - history for node in encoded.dictionary.to_pylist()]
        end = pc.fill_null(rows["end"], NO_END).to_numpy()
        is_expired: Truths = end < np.array(horizons, np.int64)[encoded.indices.to_numpy()]
        deleted = rows.filter(pa.array(is_expired))
        sources = list(map(SourceKey, deleted["home"].to_pylist(), deleted["source"].to_pylist()))
        earlier = self._find(EXPIRED_BINDINGS, "end", list(set(sources)))
        for source, time in zip(sources, deleted["end"].to_pylist(), strict=True):
            expired[source] = max(time, expired.get(source, time), earlier.get(source, time))
        return is_expired

    def _source_rows(self, events: DedupedEvents) -> pa.Table:
        """The rows of sources with new events: the numbers seen, and the newest event."""
        lookup, sources = self._lookup(SOURCES), list(events.seen)
        keys = [pa.array([source[part] for source in sources], pa.string()) for part in range(2)]
        columns = ("node", "source", "seq", "time", "event", "attributes")
        stored = lookup.take(lookup.find(SOURCES.keys, keys).row, columns)
        fresh = pa.concat_tables([events.fresh, events.last_known])
        fresh = fresh.select(["home", "entity", *columns[2:]]).rename_columns(columns)
        candidates = pa.concat_tables([stored, fresh])
        candidates = candidates.filter(pc.is_valid(candidates["event"])).sort_by([("seq", "ascending")])
        newest = {SourceKey(row["node"], row["source"]): row for row in newest_rows(SOURCES, candidates).to_pylist()}
        rows = [
            {**newest.get(source, {}), "node": source.home, "source": source.name, "seen": ranges.to_text()}
            for source, ranges in events.seen.items()
        ]
        return pa.Table.from_pylist(rows, SOURCES.schema)

    def _last_sent(self, pending: pa.Table, removed: Iterable[tuple[str, str]]) -> LastSent:
        """When the last event was sent to subscriptions with `Every` that have pending letters or were removed."""
        limited = pending.filter(pc.is_valid(pending["every"]))
        names = set(zip(limited["office"].to_pylist(), limited["subscription"].to_pylist(), strict=True)).union(removed)
        if not names:
            return {}
        keys = [pa.array(column, pa.string()) for column in zip(*names, strict=True)]
        lookup = self._lookup(LAST_SENT)
        rows = lookup.take(lookup.find(LAST_SENT.keys, keys).row).to_pylist()
        return {(row["node"], row["id"]): row["last"] for row in rows if row["last"] is not None}


def _with_partitioning(index: IndexState, partitioning: PartitioningState) -> IndexState:
    return index._replace(sharded=index.sharded and index.sharded._replace(partitioning=partitioning))


def _left_before(batch: int, rows: pa.Table) -> Truths:
    """A subscription still counts in the batch in which it leaves the index."""
    left: Truths = pc.fill_null(pc.not_equal(rows["drained_in"], batch), False).to_numpy()
    return left


def _expired_rows(expired: dict[SourceKey, int]) -> pa.Table:
    rows = [{"node": source.home, "source": source.name, "end": end} for source, end in expired.items()]
    return pa.Table.from_pylist(rows, EXPIRED_BINDINGS.schema)


def _last_sent_rows(last_sent: Mapping[tuple[str, str], int | None]) -> pa.Table:
    rows = [{"node": office, "id": id, "last": last} for (office, id), last in last_sent.items()]
    return pa.Table.from_pylist(rows, LAST_SENT.schema)


def _of_removed(rows: pa.Table) -> Truths:
    """Rows of LAST_SENT of subscriptions that were removed."""
    removed: Truths = pc.is_null(rows["last"]).to_numpy()
    return removed
