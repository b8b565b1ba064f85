"""The books: the state of a pipeline, carried on from batch to batch.

`open` takes a batch's control records and says what its events meet; `close` takes the events and makes the letters and
the state after them. Nothing has happened until that state is published and the page is turned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.term_statistics import TermStatistics
from roamcast.pipeline.letters.dedupe import Intake, Source, take_in
from roamcast.pipeline.letters.numbers import Numbered, Receiver, in_order, number_letters
from roamcast.pipeline.letters.pending import Notified, bound, first_readings, matched, thinned
from roamcast.pipeline.schemas import (
    BINDINGS,
    FORGOTTEN,
    NOTIFIED,
    RECEIVERS,
    SOURCES,
    SUBSCRIPTIONS,
    Table,
)
from roamcast.pipeline.state.balancing import UNEVEN, balanced
from roamcast.pipeline.state.bulk import Live, changes_in_bulk
from roamcast.pipeline.state.control import Changes, Control, Row, SetAside
from roamcast.pipeline.state.indexing import Indexed, with_handles
from roamcast.pipeline.state.lookups import Ends, Lookups
from roamcast.pipeline.state.manifests import Manifest, StateFolder
from roamcast.pipeline.state.moving_regions import Regions, Told, positions_of
from roamcast.pipeline.state.parts import Part, newest_rows
from roamcast.pipeline.state.shards import Partition
from roamcast.pipeline.tasks.match import Sieve
from roamcast.ranges import Ranges

__all__ = ["BALANCE", "COUNTERS", "HISTORY", "Books", "Entry", "Page"]

COUNTERS: Final = (
    "events", "duplicates_dropped", "dead_letters", "late", "throttled", "letters", "subscriptions", "bindings",
)  # fmt: skip

BALANCE: Final = 100_000
"""After so many events the load of workers is balanced."""
HISTORY: Final = 3600 * 1_000_000
"""How long an ended binding is kept for events that come late, in microseconds by the clock of its node."""

_FEW: Final = 1_000  # names that are looked up by an index, which is made for it once


class Page(NamedTuple):
    """A batch whose control records are applied. `forgotten`: when bindings of sources ended that are kept no more."""

    sieve: Sieve
    indexed: Indexed
    told: Told
    changes: Changes
    forgotten: dict[Source, int]


class Entry(NamedTuple):
    """What a batch comes to. `matches` of the match plan were found among so many `candidates`."""

    numbered: Numbered
    set_aside: list[SetAside]
    manifest: Manifest
    regions: Regions
    intake: Intake
    forgotten: dict[Source, int]
    candidates: int
    matches: int


class Books:
    """Holds in memory what every batch asks for: the numbers seen of each source and given to each receiver."""

    def __init__(
        self,
        state: StateFolder,
        manifest: Manifest,
        *,
        history: int = HISTORY,
        workers: int = 0,
        balance: int = BALANCE,
        uneven: float = UNEVEN,
    ) -> None:
        """`workers` share the index; 0: each has all of it. After every `balance` events an `uneven` load is evened."""
        self.manifest = manifest
        self._workers = workers
        self._balance = balance
        self._uneven = uneven
        self._state = state
        self._terms = TermStatistics()  # of events since the start: which terms are rare only makes matching faster
        self._parts = state.parts
        self._regions = state.regions(manifest)
        self._history = history
        sources, receivers, forgotten = (self._all(table) for table in (SOURCES, RECEIVERS, FORGOTTEN))
        self.seen = dict(zip(_sources(sources), map(Ranges.from_text, sources["seen"].to_pylist()), strict=True))
        names = map(Receiver, receivers["office"].to_pylist(), receivers["receiver"].to_pylist())
        self.last = dict(zip(names, receivers["last"].to_pylist(), strict=True))
        self.forgotten = dict(zip(_sources(forgotten), forgotten["end"].to_pylist(), strict=True))

    def open(self, control: Control, batch: int) -> Page:
        changes = changes_in_bulk(control.records, batch, self)
        positions, broken = positions_of(control.records)
        forgotten: dict[Source, int] = {}
        wishes = with_handles(changes.subscriptions, self.manifest.index.handles)
        subscriptions = self._push(SUBSCRIPTIONS, wishes, partial(_removed_before, batch))
        for terms in control.terms:
            self._terms.observe(terms)
        told = self._regions.after(wishes, positions)
        changes.set_aside.extend([*broken, *told.set_aside])
        arranger = self._state.arranger
        before = arranger.arranged(self.manifest.index, self.manifest.partition, self._workers, self.with_handles)
        index, partition = arranger.changed(*before, wishes, told.boxes, self._terms)
        bindings = self._push(BINDINGS, changes.bindings, partial(self._over, changes, forgotten))
        sources = frozenset((row["home"], row["source"]) for row in changes.initial)
        moving = told.save(self._state.segments)
        sieve = Sieve(
            self._state.folder, subscriptions, bindings, index.stack, batch, sources, moving, partition=partition
        )
        return Page(sieve, index, told, changes, forgotten)

    def close(self, page: Page, sifted: pa.Table) -> Entry:
        """`sifted` has SIFTED_SCHEMA: what the executors made of the batch's events with the page's sieve."""
        sieve, changes = page.sieve, page.changes
        intake = take_in(sifted, self.seen)
        forgotten = self.forgotten | page.forgotten
        late = _late(intake.fresh, forgotten)
        drafts = pa.concat_tables(
            [
                matched(intake.fresh, sieve.open_subscriptions()),
                bound(intake.fresh, sieve.open_bindings()),
                first_readings(changes.initial, intake.fresh, self._lookups(SOURCES)),
            ]
        )
        ordered = in_order(drafts)
        kept, notified = thinned(ordered, self._notified(ordered, changes.removed), changes.removed)
        numbered = number_letters(kept, self.last)
        set_aside = sorted([*changes.set_aside, *intake.set_aside])
        grown = {
            "events": intake.fresh.num_rows,
            "duplicates_dropped": intake.duplicates,
            "dead_letters": len(set_aside),
            "late": len(late),
            "throttled": ordered.num_rows - kept.num_rows,
            "letters": kept.num_rows,
            "subscriptions": changes.more_subscriptions,
            "bindings": changes.more_bindings,
        }
        tables = {
            SUBSCRIPTIONS.name: sieve.subscriptions,
            BINDINGS.name: sieve.bindings,
            FORGOTTEN.name: self._push(FORGOTTEN, _forgotten_rows(page.forgotten)),
            SOURCES.name: self._push(SOURCES, self._source_rows(intake)),
            NOTIFIED.name: self._push(NOTIFIED, _notified_rows(notified), _forgettable),
            RECEIVERS.name: self._push(RECEIVERS, _receiver_rows(numbered)),
        }
        counters = {name: self.manifest.counters.get(name, 0) + grown[name] for name in COUNTERS}
        versions = page.told.regions.versions(self._state.segments)
        manifest = replace(
            self.manifest, batch=sieve.batch, tables=tables, index=page.indexed, counters=counters, regions=versions,
            partition=self._planned(sieve, sifted, counters["events"]),
        )  # fmt: skip
        candidates, matches = sifted["candidates"], pc.list_value_length(sifted["subscriptions"])
        return Entry(
            numbered, [*set_aside, *late], manifest, page.told.regions, intake, page.forgotten,
            *(pc.sum(counts).as_py() or 0 for counts in (candidates, matches)),
        )  # fmt: skip

    def _planned(self, sieve: Sieve, sifted: pa.Table, events: int) -> Partition | None:
        """The load is balanced after so many events, by what the last batch of these matched."""
        partition = sieve.partition
        if partition is None or events // self._balance == self.manifest.counters.get("events", 0) // self._balance:
            return partition
        return balanced(partition, sifted, sieve.open_subscriptions(), self._uneven)

    def turn(self, entry: Entry) -> None:
        """The batch has happened."""
        self.manifest = entry.manifest
        self._regions = entry.regions
        self.seen.update(entry.intake.seen)
        self.last.update(entry.numbered.last)
        self.forgotten.update(entry.forgotten)

    def _all(self, table: Table) -> pa.Table:
        return self._parts.read_all(table, self.manifest.parts(table.name))

    def _lookups(self, table: Table) -> Lookups:
        return Lookups(self._parts.folder, table.name, self.manifest.parts(table.name))

    def with_handles(self, handles: npt.NDArray[np.int64]) -> pa.Table:
        """The subscriptions that have these, ended ones among them."""
        lookups = self._lookups(SUBSCRIPTIONS)
        return lookups.take(lookups.find(("handle",), [pa.array(handles)]).row)

    def _push(self, table: Table, rows: pa.Table, ended: Any = None) -> tuple[Part, ...]:
        return self._parts.push(table, self.manifest.parts(table.name), rows, ended)

    def live(self, node: pa.Array, id: pa.Array) -> Live:
        """The subscriptions with these names that are live."""
        lookups = self._lookups(SUBSCRIPTIONS)
        found = lookups.find(("node", "id"), (node, id), Ends.all(len(id)), scan=len(id) > _FEW)
        return Live(found.key, lookups.take(found.row))

    def bound(self, node: pa.Array, id: pa.Array) -> npt.NDArray[np.int64]:
        """The numbers of the names of which any bindings are kept."""
        return self._lookups(BINDINGS).find(("node", "id"), (node, id), scan=len(id) > _FEW).key

    def subscriptions(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        """The live ones with these names."""
        return self._find(SUBSCRIPTIONS, ("node", "id"), (node, id), Ends.all(len(id)))

    def bindings(
        self,
        node: Sequence[str],
        id: Sequence[str],
        home: Sequence[str],
        source: Sequence[str],
        time: Sequence[int],
    ) -> list[Row]:
        """The live ones of these subscriptions and sources, and those that ended at the time beside them or later."""
        ends = Ends.all(len(id))._replace(time=np.array(time, np.int64) - 1)
        return self._find(BINDINGS, ("node", "id", "home", "source"), (node, id, home, source), ends)

    def bindings_of(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        """All of these subscriptions that are kept."""
        return self._find(BINDINGS, ("node", "id"), (node, id), None)

    def _find(
        self, table: Table, columns: Sequence[str], keys: Sequence[Sequence[str]], ends: Ends | None
    ) -> list[Row]:
        lookups = self._lookups(table)
        found = lookups.find(columns, [pa.array(column, pa.string()) for column in keys], ends)
        rows: list[Row] = lookups.take(found.row).to_pylist()
        return rows

    def _over(self, changes: Changes, forgotten: dict[Source, int], rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Which bindings ended so long ago that they need not be kept; `forgotten` is told of them."""
        encoded = rows["node"].combine_chunks().dictionary_encode()
        horizons = [changes.clocks.get(node, 0) - self._history for node in encoded.dictionary.to_pylist()]
        end = pc.fill_null(rows["end"], np.iinfo(np.int64).max).to_numpy()
        over: npt.NDArray[np.bool_] = end < np.array(horizons, np.int64)[encoded.indices.to_numpy()]
        gone = rows.filter(pa.array(over))
        for source, ended in zip(_sources(gone, "home"), gone["end"].to_pylist(), strict=True):
            forgotten[source] = max(ended, forgotten.get(source, ended), self.forgotten.get(source, ended))
        return over

    def _source_rows(self, intake: Intake) -> pa.Table:
        """What is known now of the sources with new events: numbers seen, and the newest event."""
        lookups, sources = self._lookups(SOURCES), list(intake.seen)
        keys = [pa.array([source[part] for source in sources], pa.string()) for part in range(2)]
        columns = ("node", "source", "seq", "time", "event", "attributes")
        before = lookups.take(lookups.find(SOURCES.keys, keys).row, columns)
        now = intake.fresh.select(["home", "entity", *columns[2:]]).rename_columns(columns)
        told = pa.concat_tables([before, now])
        told = told.filter(pc.is_valid(told["event"])).sort_by([("seq", "ascending")])
        newest = {Source(row["node"], row["source"]): row for row in newest_rows(SOURCES, told).to_pylist()}
        rows = [
            {**newest.get(source, {}), "node": source.node, "source": source.name, "seen": ranges.to_text()}
            for source, ranges in intake.seen.items()
        ]
        return pa.Table.from_pylist(rows, SOURCES.schema)

    def _notified(self, drafts: pa.Table, removed: Iterable[tuple[str, str]]) -> Notified:
        """Of the subscriptions with `Every` that have drafts or were removed: when they were last notified."""
        limited = drafts.filter(pc.is_valid(drafts["every"]))
        names = set(zip(limited["office"].to_pylist(), limited["subscription"].to_pylist(), strict=True)).union(removed)
        if not names:
            return {}
        keys = [pa.array(column, pa.string()) for column in zip(*names, strict=True)]
        lookups = self._lookups(NOTIFIED)
        rows = lookups.take(lookups.find(NOTIFIED.keys, keys).row).to_pylist()
        return {(row["node"], row["id"]): row["last"] for row in rows if row["last"] is not None}


def _removed_before(batch: int, rows: pa.Table) -> npt.NDArray[np.bool_]:
    """A removed subscription still counts in the batch that removed it."""
    removed: npt.NDArray[np.bool_] = pc.fill_null(pc.not_equal(rows["removed_in"], batch), False).to_numpy()
    return removed


def _late(fresh: pa.Table, forgotten: dict[Source, int]) -> list[SetAside]:
    """Events that met no binding, and came when those of their time were forgotten. Plan match has had them."""
    if not forgotten:
        return []
    fresh = fresh.filter(pc.equal(pc.list_value_length(fresh["bindings"]), 0))
    reason = "it came too late: how its source was bound when it happened is known no more"
    columns = (fresh[name].to_pylist() for name in ("node", "offset", "home", "entity", "time"))
    return [
        SetAside(node, offset, reason)
        for node, offset, home, entity, time in zip(*columns, strict=True)
        if time < forgotten.get(Source(home, entity), time)
    ]


def _sources(rows: pa.Table, node: str = "node") -> list[Source]:
    return list(map(Source, rows[node].to_pylist(), rows["source"].to_pylist()))


def _forgotten_rows(forgotten: dict[Source, int]) -> pa.Table:
    rows = [{"node": source.node, "source": source.name, "end": end} for source, end in forgotten.items()]
    return pa.Table.from_pylist(rows, FORGOTTEN.schema)


def _notified_rows(notified: Mapping[tuple[str, str], int | None]) -> pa.Table:
    rows = [{"node": office, "id": id, "last": last} for (office, id), last in notified.items()]
    return pa.Table.from_pylist(rows, NOTIFIED.schema)


def _forgettable(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Subscriptions that were removed."""
    removed: npt.NDArray[np.bool_] = pc.is_null(rows["last"]).to_numpy()
    return removed


def _receiver_rows(numbered: Numbered) -> pa.Table:
    rows = [{"office": to.office, "receiver": to.name, "last": last} for to, last in numbered.last.items()]
    return pa.Table.from_pylist(rows, RECEIVERS.schema)
