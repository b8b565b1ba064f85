"""The policy of DRt-Cluster: subscriptions in categories, which are placed, merged and moved (`match.partitioners`).

Stored are the category of each subscription, worker, load and bounds of each category, and the window of correlation.
Everything else follows from the rows of the shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import CorruptionError
from roamcast.match.index.rows import IndexRows, sample_evenly
from roamcast.match.partitioners.categories import Categories, CategoryParameters
from roamcast.match.partitioners.hilbert import bound_boxes
from roamcast.match.routing.features import hash_terms
from roamcast.pipeline.schemas import CATEGORIES, CORRELATED, MEMBERS, StateTable
from roamcast.pipeline.state.load import SAMPLED_OFFSETS
from roamcast.pipeline.state.lookups import Integers, TableLookup, Truths
from roamcast.pipeline.state.partitioning import (
    NONE_MOVE,
    BatchReport,
    Masks,
    MatchSample,
    PartitioningSettings,
    PartitioningState,
)
from roamcast.pipeline.state.parts import RESTORE_HINT, Obsolete, Part, PartFolder

__all__ = ["CategoryPolicy"]

Floats = npt.NDArray[np.float64]

_NONE: Final = -1
_SIDES: Final = ("min_x", "min_y", "max_x", "max_y")
_EVENTS: Final = 256  # of a batch, for correlation
_SHOWN: Final = 1_000  # categories, those with the most load


class _Slots(NamedTuple):
    """Categories as they are stored: `worker` is -1 for those that do not exist."""

    worker: Integers
    load: Integers
    box: Floats

    @classmethod
    def of(cls, categories: Categories) -> Self:
        slots = categories.slots
        exists = slots.size > 0
        box = np.where(exists[:, np.newaxis], slots.box, 0.0)
        return cls(np.where(exists, slots.worker, _NONE), np.where(exists, slots.load, 0).astype(np.int64), box)


class CategoryPolicy:
    """A `ShardPolicy`. `tables` hold what was saved last."""

    follows_boxes = False

    def __init__(
        self,
        categories: Categories,
        parts: PartFolder,
        tables: Mapping[str, tuple[Part, ...]],
        *,
        is_due: bool = False,
        balanced: int = 0,
    ) -> None:
        """`balanced` counts the subscriptions that balancing has moved."""
        self.categories = categories
        self._parts = parts
        self._tables = dict(tables)
        self._is_due = is_due
        self._balanced = balanced
        self._members_changed = False
        self._saved_members = self._members()
        self._saved_slots = _Slots.of(categories)
        self._saved_events = categories.correlation.added

    @classmethod
    def create(cls, workers: int, settings: PartitioningSettings, parts: PartFolder) -> Self:
        return cls(Categories(settings.categories, workers, settings.distribution), parts, {})

    @classmethod
    def restore(
        cls,
        workers: int,
        settings: PartitioningSettings,
        parts: PartFolder,
        state: PartitioningState,
        rows: IndexRows | None,
    ) -> Self:
        """Restore the policy of a manifest. `rows` are those of all shards, ordered by handle."""
        values, arrays = state.values, _arrays(settings, parts, state, rows)
        categories = Categories.of_arrays(settings.categories, arrays, workers, settings.distribution)
        categories.progress.effort[:] = values["merges"], values["relabelled"], values["moved"]
        return cls(categories, parts, state.tables, is_due=values["due"], balanced=values["balanced"])

    @staticmethod
    def fits(state: PartitioningState, settings: PartitioningSettings) -> bool:
        """Whether a stored state can go on with these settings."""
        return bool(state.values["shape"] == _shape(settings.categories))

    @property
    def sampled_matches(self) -> int:
        return self.categories.parameters.matches

    def begin_batch(self) -> Integers | None:
        if not self._is_due:
            return NONE_MOVE
        self._is_due = False
        moved = self.categories.balance()
        self._balanced += len(moved)
        return moved

    def replace_boxes(self, handle: Integers, box: Floats) -> None:
        self.categories.replace_boxes(handle, box)

    def start(self, rows: IndexRows) -> None:
        pass

    def remove(self, handles: Integers) -> None:
        self._members_changed |= len(handles) > 0
        self.categories.remove(handles)

    def add(self, rows: IndexRows) -> Integers:
        self._members_changed |= len(rows.handle) > 0
        return np.setdiff1d(self.categories.add(rows), rows.handle, assume_unique=True)

    def masks(self, rows: IndexRows) -> Masks:
        worker = self.categories.slots.worker[self.categories.of(rows.handle)]
        return np.uint64(1) << worker.astype(np.uint64)

    def save_placement(self) -> PartitioningState:
        if self._members_changed:
            members = self._members()
            self._push(MEMBERS, _changed_members(self._saved_members, members), _has_left)
            self._saved_members, self._members_changed = members, False
        return self._state()

    def end_batch(self, report: BatchReport) -> None:
        units = report.load.of_units
        self.categories.receive(units.unit, SAMPLED_OFFSETS * units.messages)
        self.categories.observe(*_sample_matches(report.sample, report.subscriptions))
        self._is_due |= report.is_due

    def save(self) -> PartitioningState:
        slots, before = _Slots.of(self.categories), self._saved_slots
        changed = (slots.worker != before.worker) | (slots.load != before.load) | (slots.box != before.box).any(axis=1)
        at = np.flatnonzero(changed)
        columns = {"category": at, "worker": slots.worker[at], "load": slots.load[at]}
        columns |= {name: slots.box[at, side] for side, name in enumerate(_SIDES)}
        self._push(CATEGORIES, pa.table(columns, CATEGORIES.schema), _is_free)
        window, added = self.categories.correlation.window.row, self.categories.correlation.added
        new = np.arange(max(self._saved_events, added - len(window)), added) % len(window)
        handles = [self.categories.handle[line[line != _NONE]] for line in window[new]]
        self._push(CORRELATED, pa.table({"line": new, "handles": handles}, CORRELATED.schema))
        self._saved_slots, self._saved_events = slots, added
        return self._state()

    def describe(self) -> Mapping[str, Any]:
        slots, live, effort = self.categories.slots, self.categories.live, self.categories.effort
        columns = (live, slots.worker[live], slots.size[live], slots.load[live].astype(np.int64))
        most = np.argsort(-columns[3], kind="stable")[:_SHOWN]
        names = ("category", "worker", "size", "load")
        rows = [dict(zip(names, row, strict=True)) for row in np.stack(columns, axis=1)[most].tolist()]
        return {
            "partitioner": "drtcluster",
            "category_count": len(live),
            "categories": rows,
            "merges": effort.merges,
            "relabelled": effort.relabelled,
            "moved_by_merging": effort.moved,
            "moved_by_balancing": self._balanced,
        }

    def _members(self) -> tuple[Integers, Integers]:
        """The handles of all members, ascending, and the category of each."""
        category = self.categories.rows.category[: self.categories.count]
        live = np.flatnonzero(category != _NONE)
        return self.categories.handle[live], category[live].astype(np.int64)

    def _push(self, table: StateTable, rows: pa.Table, obsolete: Obsolete | None = None) -> None:
        self._tables[table.name] = self._parts.push(table, self._tables.get(table.name, ()), rows, obsolete)

    def _state(self) -> PartitioningState:
        effort = self.categories.effort
        values = {
            "shape": _shape(self.categories.parameters),
            "added": self.categories.correlation.added,
            "due": self._is_due,
            "merges": effort.merges,
            "relabelled": effort.relabelled,
            "moved": effort.moved,
            "balanced": self._balanced,
        }
        return PartitioningState("drtcluster", values, dict(self._tables))


def _shape(parameters: CategoryParameters) -> list[int]:
    """What arrays of a state depend on."""
    return [parameters.max_categories, parameters.window, parameters.matches]


def _arrays(
    settings: PartitioningSettings, parts: PartFolder, state: PartitioningState, rows: IndexRows | None
) -> dict[str, npt.NDArray[Any]]:
    """The arrays that `Categories.of_arrays` takes."""
    parameters = settings.categories
    handle = np.empty(0, np.int64) if rows is None else rows.handle
    box = np.empty((0, 4)) if rows is None else rows.box
    first = np.zeros(1, np.int64) if rows is None else rows.terms.first
    term = np.empty(0, np.uint64) if rows is None else hash_terms(rows.terms)
    members, slots, lines = (
        parts.read_all(table, state.tables.get(table.name, ())) for table in (MEMBERS, CATEGORIES, CORRELATED)
    )
    members = members.filter(pc.not_equal(members["category"], _NONE))
    if not np.array_equal(members["handle"].to_numpy(), handle):
        raise CorruptionError("the categories are not those of the subscriptions in the shards", hint=RESTORE_HINT)
    category = members["category"].to_numpy()
    count, at = parameters.max_categories + 1, slots["category"].to_numpy()
    worker, load, bounds = np.full(count, _NONE, np.int64), np.zeros(count), np.zeros((count, 4))
    worker[at], load[at] = slots["worker"].to_numpy(), slots["load"].to_numpy()
    bounds[at] = np.stack([slots[name].to_numpy() for name in _SIDES], axis=1)
    return {
        "handle": handle, "box": bound_boxes(box), "first": first, "term": term, "category": category,
        "bounds": bounds, "worker": worker, "load": load, "window": _window(parameters, lines, handle),
        "added": np.array([state.values["added"]]),
    }  # fmt: skip


def _window(parameters: CategoryParameters, lines: pa.Table, handle: Integers) -> Integers:
    """The window as row numbers, given the handles of all rows; -1 for subscriptions that have left."""
    window = np.full((parameters.window, parameters.matches), _NONE, np.int64)
    if lines.num_rows and len(handle):
        handles = lines["handles"].combine_chunks()
        lengths, values = pc.list_value_length(handles).to_numpy(), handles.flatten().to_numpy()
        column = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        row = np.minimum(np.searchsorted(handle, values), len(handle) - 1)
        window[np.repeat(lines["line"].to_numpy(), lengths), column] = np.where(handle[row] == values, row, _NONE)
    return window


def _changed_members(before: tuple[Integers, Integers], after: tuple[Integers, Integers]) -> pa.Table:
    """Rows of MEMBERS for the subscriptions that are new, have another category or have left."""
    handle, category = before
    at = np.minimum(np.searchsorted(handle, after[0]), max(len(handle) - 1, 0))
    same = (handle[at] == after[0]) & (category[at] == after[1]) if len(handle) else np.zeros(len(after[0]), np.bool_)
    left = np.setdiff1d(handle, after[0], assume_unique=True)
    handles = np.append(after[0][~same], left)
    return pa.table({"handle": handles, "category": np.append(after[1][~same], np.full(len(left), _NONE))})


def _sample_matches(sample: Sequence[MatchSample], subscriptions: TableLookup) -> tuple[Integers, Integers]:
    """Pairs of an event and a handle, ordered by event: some of the events with several matches."""
    several = [event.rows for event in sample if event.matches > 1]
    chosen = [np.array(several[at], np.int64) for at in sample_evenly(len(several), _EVENTS)]
    event = np.repeat(np.arange(len(chosen)), [len(one) for one in chosen])
    sampled = np.concatenate([np.empty(0, np.int64), *chosen])
    return event, subscriptions.take(sampled, ("handle",))["handle"].to_numpy()


def _has_left(members: pa.Table) -> Truths:
    left: Truths = pc.equal(members["category"], _NONE).to_numpy()
    return left


def _is_free(categories: pa.Table) -> Truths:
    free: Truths = pc.equal(categories["worker"], _NONE).to_numpy()
    return free
