"""The partitioning policies with little state: curve, kdtree and hashing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from roamcast.match.index.rows import IndexRows, index_rows, sample_evenly
from roamcast.match.partitioners.cuts import Cuts, LoadSample
from roamcast.match.partitioners.hilbert import bound_boxes, curve_keys_of_rows
from roamcast.match.partitioners.kdtree import KdLeaves, cell_centres
from roamcast.match.routing.features import rarest_terms
from roamcast.pipeline.state.index_state import boxes_and_terms
from roamcast.pipeline.state.lookups import Integers, TableLookup, Truths
from roamcast.pipeline.state.partitioning import (
    NONE_MOVE,
    BatchReport,
    Masks,
    PartitioningSettings,
    PartitioningState,
)

__all__ = ["CurvePolicy", "HashingPolicy", "KdTreePolicy"]

Floats = npt.NDArray[np.float64]

_SAMPLE: Final = 20_000  # matches, and subscriptions
_MATCHES: Final = 64  # of an event
_CONFIDENCE: Final = 3.0  # standard deviations by which the load in a sample may be off
_PLACED: Final = ("handle", "min_x", "min_y", "max_x", "max_y", "terms", "moving_radius")


class _Stateless:
    """What policies without a state for each subscription have in common."""

    partitioner = ""
    sampled_matches = 0
    follows_boxes = False

    def begin_batch(self) -> Integers | None:
        return NONE_MOVE

    def replace_boxes(self, handle: Integers, box: Floats) -> None:
        pass

    def start(self, rows: IndexRows) -> None:
        pass

    def remove(self, handles: Integers) -> None:
        pass

    def add(self, rows: IndexRows) -> Integers:
        return NONE_MOVE

    def save_placement(self) -> PartitioningState:
        return self.save()

    def end_batch(self, report: BatchReport) -> None:
        pass

    def save(self) -> PartitioningState:
        return PartitioningState(self.partitioner, self._values(), {})

    def describe(self) -> Mapping[str, Any]:
        return {"partitioner": self.partitioner}

    def _values(self) -> Mapping[str, Any]:
        return {}


class CurvePolicy(_Stateless):
    """By ranges of a space-filling curve (`match.partitioners.curve`). The state is some hundred cuts.

    A little is gained with every new sample, but each time many subscriptions would have to move. Hence the threshold.
    """

    partitioner = "curve"
    sampled_matches = _MATCHES

    def __init__(self, workers: int, settings: PartitioningSettings, values: Mapping[str, Any] | None = None) -> None:
        self._workers, self._imbalance = workers, settings.imbalance
        self.cuts = Cuts.even(workers, np.empty(0)) if values is None else _cuts(values["cuts"])
        self.planned = None if values is None or values["planned"] is None else _cuts(values["planned"])

    def begin_batch(self) -> Integers | None:
        if self.planned is None:
            return NONE_MOVE
        self.cuts, self.planned = self.planned, None
        return None

    def start(self, rows: IndexRows) -> None:
        if len(rows.handle) >= len(self.cuts.at):
            self.cuts = Cuts.even(self._workers, curve_keys_of_rows(rows))

    def masks(self, rows: IndexRows) -> Masks:
        return np.uint64(1) << self.cuts.workers_of(curve_keys_of_rows(rows)).astype(np.uint64)

    def end_batch(self, report: BatchReport) -> None:
        """Plan other cuts for the next batch if the load of this one was too uneven."""
        if not report.is_due:
            return
        rows = np.array([row for event in report.sample for row in event.rows], np.int64)
        sample = sample_evenly(len(rows), _SAMPLE)
        event = np.repeat(np.arange(len(report.sample)), [len(event.rows) for event in report.sample])[sample]
        weight = np.array([event.matches / len(event.rows) for event in report.sample])[event]
        keys, is_fixed = _curve_keys(report.subscriptions, rows[sample])
        held, _ = _curve_keys(report.subscriptions, report.subscriptions.sample(_SAMPLE))
        load = LoadSample.of_candidates(event[is_fixed], keys, weight[is_fixed])
        threshold = _threshold(self._imbalance, len(np.unique(load.event)), self._workers)
        if self.cuts.imbalance(self._workers, load, held) < threshold:
            return
        cuts = self.cuts.rebalance(self._workers, load, held)
        self.planned = None if cuts == self.cuts else cuts

    def _values(self) -> Mapping[str, Any]:
        return {"cuts": self.cuts._asdict(), "planned": self.planned._asdict() if self.planned else None}


class KdTreePolicy(_Stateless):
    """By parts of the plane (`match.partitioners.kdtree`): a box on a border has a copy in each shard it touches."""

    partitioner = "kdtree"
    follows_boxes = True

    def __init__(self, workers: int, settings: PartitioningSettings, values: Mapping[str, Any] | None = None) -> None:
        self._workers, self._imbalance = workers, settings.imbalance
        nowhere = KdLeaves.divide(np.empty((0, 2)), np.empty(0), workers)
        self.leaves = nowhere if values is None else KdLeaves.of_lists(values["leaves"])
        self.planned = None if values is None or values["planned"] is None else KdLeaves.of_lists(values["planned"])

    def begin_batch(self) -> Integers | None:
        if self.planned is None:
            return NONE_MOVE
        self.leaves, self.planned = self.planned, None
        return None

    def start(self, rows: IndexRows) -> None:
        box = bound_boxes(rows.box[~np.isnan(rows.box).any(axis=1)])
        if len(box) >= self._workers:
            self.leaves = KdLeaves.divide((box[:, :2] + box[:, 2:]) / 2, np.ones(len(box)), self._workers)

    def masks(self, rows: IndexRows) -> Masks:
        return self.leaves.masks(rows.box)

    def end_batch(self, report: BatchReport) -> None:
        """Plan other parts for the next batch if the load of this one was too uneven."""
        units = report.load.of_units
        if not report.is_due or not len(units.unit):
            return
        point, cost = cell_centres(units.unit), (units.messages + units.checks).astype(np.float64)
        load = np.bincount(units.worker, cost, minlength=self._workers)
        if load.max() >= _threshold(self._imbalance, int(units.messages.sum()), self._workers) * load.mean():
            leaves = KdLeaves.divide(point, cost, self._workers)
            self.planned = None if np.array_equal(leaves.box, self.leaves.box) else leaves

    def _values(self) -> Mapping[str, Any]:
        return {"leaves": self.leaves.to_lists(), "planned": self.planned.to_lists() if self.planned else None}


class HashingPolicy(_Stateless):
    """By the hash of the rarest term, counted over the rows that are added together. Nothing ever moves."""

    partitioner = "hashing"

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def masks(self, rows: IndexRows) -> Masks:
        return np.uint64(1) << (rarest_terms(rows).rarest >> np.uint64(32)) % np.uint64(self._workers)


def _threshold(imbalance: float, events: int, workers: int) -> float:
    """The imbalance from which on a sample of this many events shows more than chance."""
    return imbalance * (1 + _CONFIDENCE / math.sqrt(max(events, 1) / workers))


def _cuts(content: Mapping[str, Any]) -> Cuts:
    return Cuts(tuple(content["at"]), tuple(content["owner"]))


def _curve_keys(subscriptions: TableLookup, numbers: Integers) -> tuple[Floats, Truths]:
    """The curve keys of the rows that have no moving region, and which of the rows these are."""
    rows = subscriptions.take(numbers, _PLACED)
    is_fixed = pc.is_null(rows["moving_radius"])
    rows = rows.filter(is_fixed)
    return curve_keys_of_rows(index_rows(rows["handle"].to_numpy(), boxes_and_terms(rows))), is_fixed.to_numpy()
