"""The batch state: what the driver carries from batch to batch.

`prepare` applies the control records of a batch. Then its letters are made, in tasks or in the driver (`letters.job`).
`compute_result` computes the next state from what they report, and `commit` publishes it. Until then the batch has no
effect and may be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.deliver.batch_records import LetterFile
from roamcast.match.index.term_statistics import TermStatistics
from roamcast.model import BEFORE_ALL, NO_END
from roamcast.pipeline.letters.by_source import find_of_sources
from roamcast.pipeline.letters.context import LetterContext, LetterReport, SourceKey
from roamcast.pipeline.schemas import BINDINGS, EXPIRED_BINDINGS, SUBSCRIPTIONS, StateTable
from roamcast.pipeline.state.changes import ControlChanges, apply_records_in_bulk, drain, drained_through
from roamcast.pipeline.state.control import ControlRecords, DeadLetter
from roamcast.pipeline.state.index_state import IndexState, assign_handles
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.lookups import KeyLookup, Truths
from roamcast.pipeline.state.manifests import Manifest, StateFolder
from roamcast.pipeline.state.moving_regions import MovingRegionState, MovingRegionsUpdate, read_positions
from roamcast.pipeline.state.partitioning import (
    MEASURED,
    BatchReport,
    PartitioningSettings,
    PartitioningState,
    ShardPolicy,
)
from roamcast.pipeline.state.parts import Obsolete, Part
from roamcast.pipeline.tasks.context import MatchContext

__all__ = ["COUNTERS", "BatchResult", "BatchSettings", "BatchState", "PreparedBatch"]

COUNTERS: Final = (
    "events", "duplicates_dropped", "dead_letters", "late", "throttled", "letters", "subscriptions", "bindings",
)  # fmt: skip

_SAMPLED_EVENTS: Final = 2_000


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How batches are processed.

    `binding_history`: how long ended bindings are kept for late events, in microseconds of their node's clock.
    `shards`: number of shards of sources and receivers; 0: as many as there are. `workers`: number of shards of the
    index; 0: each worker has the whole index. After every `rebalance_events` events the load of workers is balanced, if
    the partitioner finds it uneven.
    """

    binding_history: int = 3600 * 1_000_000
    shards: int = 0
    workers: int = 0
    rebalance_events: int = 100_000
    partitioning: PartitioningSettings = field(default_factory=PartitioningSettings)


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch whose control records are applied.

    `policy` has decided where its subscriptions are, and learns from it once.
    """

    context: MatchContext
    letters: LetterContext
    index: IndexState
    policy: ShardPolicy | None
    regions: MovingRegionsUpdate
    changes: ControlChanges


class BatchResult(NamedTuple):
    """The letters of a batch and the state after it. `postings_scanned` and `matches` are totals of plan match.

    `load` is that of the shards of a partitioned index.
    """

    letters: Sequence[LetterFile]
    dead_letters: list[DeadLetter]
    manifest: Manifest
    regions: MovingRegionState
    policy: ShardPolicy | None
    load: LoadRows
    postings_scanned: int
    matches: int


class BatchState:
    """The state between two batches. It does not read what is said there of sources and receivers."""

    def __init__(self, folder: StateFolder, manifest: Manifest, settings: BatchSettings | None = None) -> None:
        self._settings = settings or BatchSettings()
        self.manifest = folder.divide(manifest, self._settings.shards or manifest.shards)
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
        letters = LetterContext(
            context,
            self.manifest.pipeline,
            self.manifest.shards,
            self.manifest.tables,
            tuple(changes.initial),
            changes.removed,
            changes.left,
            _sample_interval(policy, control.events),
            policy.sampled_matches if policy else 0,
        )
        tables = letters.open()
        tables.add(EXPIRED_BINDINGS, _expired_rows(expired, tables.lookup(EXPIRED_BINDINGS)))
        letters = letters._replace(stacks={**letters.stacks, **tables.stacks})
        return PreparedBatch(context, letters, index, policy, regions, changes)

    def compute_result(self, prepared: PreparedBatch, reports: Sequence[LetterReport]) -> BatchResult:
        """Compute the state after a batch, given what was reported when its letters were made."""
        context, changes = prepared.context, prepared.changes
        load = LoadRows.concatenate([report.load for report in reports])
        dead_letters = sorted([*changes.dead_letters, *(one for report in reports for one in report.dead_letters)])
        late = [one for report in reports for one in report.late]
        growth: Counter[str] = Counter(
            dead_letters=len(dead_letters),
            late=len(late),
            subscriptions=changes.subscription_growth,
            bindings=changes.binding_growth,
        )
        for report in reports:
            growth.update(report.counters)
        counters = {name: self.manifest.counters.get(name, 0) + growth[name] for name in COUNTERS}
        tables = {
            **prepared.letters.stacks,
            **{name: parts for report in reports for name, parts in report.stacks.items()},
            SUBSCRIPTIONS.name: context.subscriptions,
            BINDINGS.name: context.bindings,
        }
        manifest = replace(
            self.manifest,
            batch=context.batch,
            tables=tables,
            index=self._learn(prepared, reports, load, counters["events"]),
            counters=counters,
            history=self._settings.binding_history,
            moving_regions=prepared.regions.regions.save(self._folder.segments),
        )
        return BatchResult(
            [file for report in reports for file in report.files],
            [*dead_letters, *sorted(late)],
            manifest,
            prepared.regions.regions,
            prepared.policy,
            load,
            sum(report.scanned for report in reports),
            sum(report.matches for report in reports),
        )

    def commit(self, result: BatchResult) -> None:
        """Publish the state after a batch durably, and continue from it."""
        self._folder.publish(result.manifest)
        self.manifest = result.manifest
        self._policy = result.policy
        self._regions = result.regions

    def _push(self, table: StateTable, rows: pa.Table, obsolete: Obsolete | None = None) -> tuple[Part, ...]:
        return self._folder.parts.push(table, self.manifest.parts(table), rows, obsolete)

    @property
    def _is_measured(self) -> bool:
        """Whether decisions depend on the work of a search. Then the index must not depend on the term statistics."""
        return self._settings.workers > 0 and self._settings.partitioning.partitioner in MEASURED

    def _learn(
        self, prepared: PreparedBatch, reports: Sequence[LetterReport], load: LoadRows, events: int
    ) -> IndexState:
        """Let the policy learn from the batch, and balance the load if it is time to."""
        if prepared.policy is None:
            return prepared.index
        before, every = self.manifest.counters.get("events", 0), self._settings.rebalance_events
        is_due = events // every != before // every
        sample = sorted(match for report in reports for match in report.sample)
        prepared.policy.end_batch(BatchReport(load, sample, prepared.context.open_subscriptions(), is_due))
        return _with_partitioning(prepared.index, prepared.policy.save())

    def _expire(self, changes: ControlChanges, expired: dict[SourceKey, int], rows: pa.Table) -> Truths:
        """Which bindings ended so long ago that they may be deleted. Their ends are noted in `expired`."""
        encoded = rows["node"].combine_chunks().dictionary_encode()
        history, latest = self.manifest.history, changes.latest_binding_times
        nodes = encoded.dictionary.to_pylist()
        horizons = [BEFORE_ALL if history is None else latest.get(node, 0) - history for node in nodes]
        end = pc.fill_null(rows["end"], NO_END).to_numpy()
        is_expired: Truths = end < np.array(horizons, np.int64)[encoded.indices.to_numpy()]
        deleted = rows.filter(pa.array(is_expired))
        sources = map(SourceKey, deleted["home"].to_pylist(), deleted["source"].to_pylist())
        for source, time in zip(sources, deleted["end"].to_pylist(), strict=True):
            expired[source] = max(time, expired.get(source, time))
        return is_expired


def _with_partitioning(index: IndexState, partitioning: PartitioningState) -> IndexState:
    return index._replace(sharded=index.sharded and index.sharded._replace(partitioning=partitioning))


def _left_before(batch: int, rows: pa.Table) -> Truths:
    """A subscription still counts in the batch in which it leaves the index."""
    left: Truths = pc.fill_null(pc.not_equal(rows["drained_in"], batch), False).to_numpy()
    return left


def _sample_interval(policy: ShardPolicy | None, events: int) -> int:
    """If a policy learns from matches, those of a regular sample of events are reported."""
    return max(1, events // _SAMPLED_EVENTS) if policy and policy.sampled_matches else 0


def _expired_rows(expired: Mapping[SourceKey, int], before: KeyLookup) -> pa.Table:
    earlier = find_of_sources(before, EXPIRED_BINDINGS, "end", list(expired))
    latest = {source: max(end, earlier.get(source, end)) for source, end in expired.items()}
    rows = [{"node": source.home, "source": source.name, "end": end} for source, end in latest.items()]
    return pa.Table.from_pylist(rows, EXPIRED_BINDINGS.schema)
