"""Which category is most similar to a subscription."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.clustering import (
    BLOCK,
    NONE,
    CategorySlots,
    MemberRows,
    TermCounts,
    block_of,
    block_range,
    category_of,
    frequency_of,
)
from roamcast.match.kernels.correlating import CorrelationCache, Points, WindowLists
from roamcast.match.kernels.intrinsics import Scalar, i64, prefetch

__all__ = ["ClusterState", "MergeSettings", "most_similar", "nearest"]

Floats = npt.NDArray[np.float64]

_AHEAD: Final = 8  # categories, when prefetching
_ALMOST: Final = 1 - 1e-9  # more than rounding errors


class MergeSettings(NamedTuple):
    """See `categories.CategoryParameters` and `categories.Distribution`."""

    alpha: float
    new_threshold: float
    frequencies: bool
    correlation: bool
    least_area: float
    max_relative_size: float
    merge: float
    between: bool


class ClusterState(NamedTuple):
    """All categories. At least one more number than there may be categories."""

    rows: MemberRows
    slots: CategorySlots
    counts: TermCounts
    window: WindowLists
    cache: CorrelationCache
    scratch: Points


@kernel
def _area(min_x: float, min_y: float, max_x: float, max_y: float) -> float:
    return (max_x - min_x) * (max_y - min_y)


@kernel
def _growth(box: Floats, row_box: Floats, area: float) -> float:
    """Return by how much the area of a box grows if a row joins it."""
    min_x, min_y = min(box[0], row_box[0]), min(box[1], row_box[1])
    return _area(min_x, min_y, max(box[2], row_box[2]), max(box[3], row_box[3])) - area


@kernel
def _count_shared(state: ClusterState, frequencies: bool, row: int) -> int:
    """Count in `scratch` how often the terms of a row occur in categories; return how many categories have any."""
    counts, scratch, count = state.counts, state.scratch, 0
    for at in range(state.rows.first[row], state.rows.first[row + 1]):
        end = block_of(counts, state.rows.term[at])
        while end != NONE:
            begin, following = block_range(counts, end)
            if following != NONE:
                prefetch(counts.entry, following - BLOCK)
                prefetch(counts.entry, following - BLOCK // 2)
                prefetch(counts.next_block, following // BLOCK - 1)
            for entry in counts.entry[begin:end]:
                category = category_of(entry)
                if scratch.points[category] == 0:
                    scratch.touched[count] = category
                    count += 1
                scratch.points[category] += frequency_of(entry) if frequencies else 1
            end = following
    return count


@inline_kernel
def most_similar(state: ClusterState, settings: MergeSettings, row: int, capacity: float) -> tuple[int, float]:
    """Return the most similar category with free capacity, and how similar it is; NONE if none is similar at all.

    Of equals the one whose box would grow least, then the lowest.
    """
    slots, scratch = state.slots, state.scratch
    count = _count_shared(state, settings.frequencies, row)
    best, best_sim, best_growth = i64(NONE), 0.0, inf
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(slots.box, i64(scratch.touched[i + _AHEAD]))
            prefetch(slots.total, i64(scratch.touched[i + _AHEAD]))
        category = i64(scratch.touched[i])
        shared = i64(scratch.points[category])
        scratch.points[category] = 0
        whole = slots.total[category] if settings.frequencies else slots.distinct[category]
        # Most are less similar by far, which shows without division, and for some without their box.
        weighted, least = settings.alpha * shared, _ALMOST * best_sim * (1 - settings.alpha) * whole
        if weighted < least:
            continue
        box = slots.box[category]
        area = _area(box[0], box[1], box[2], box[3])
        growth = _growth(box, state.rows.box[row], area)
        base = max(area, settings.least_area)
        if weighted * base < least * (base + growth):
            continue
        if slots.size[category] + 1 > capacity:
            continue
        sim = settings.alpha * (shared / whole) / ((1 - settings.alpha) * (1 + growth / base))
        if sim > best_sim or (
            sim == best_sim and sim > 0 and (growth < best_growth or (growth == best_growth and category < best))
        ):
            best, best_sim, best_growth = category, sim, growth
    return best, best_sim


@inline_kernel
def nearest(state: ClusterState, row: int, capacity: float) -> Scalar:
    """Return the category with free capacity whose box would grow least; of equals the lowest."""
    slots = state.slots
    best, best_growth, own = i64(NONE), inf, i64(state.rows.category[row])
    for category in range(len(slots.size)):
        if slots.size[category] == 0 or slots.size[category] + 1 > capacity or category == own:
            continue
        box = slots.box[category]
        growth = _growth(box, state.rows.box[row], _area(box[0], box[1], box[2], box[3]))
        if growth < best_growth:
            best, best_growth = i64(category), growth
    return best
