"""The result of a run, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.field import FieldWorld

__all__ = ["RunFigures", "SimulationResult", "count_wanted_pairs", "run_figures"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a run. `counts` has the counters of `kernels.layout.COUNTS`.

    `delivered` has a row (tick, mule, event, hops) for each first receipt of an event by a mule that wants it, and
    `delay_s` its delay. `transfers`, if logged, has a row (tick, sender, receiver, event) for each transfer; mules are
    numbered after the sensors. `held` is the number of own and kept copies in queues at the end, `under_way` that of
    relayed copies. `wanted` is the number of pairs of an event and a mule that wants it.
    """

    counts: Mapping[str, int]
    delivered: Rows
    delay_s: Floats
    energy: Floats
    held: int
    under_way: int
    first_death_s: float | None
    wanted: int
    ended_s: float
    transfers: Rows | None = None


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of one run. Copies are counted in three ways; `copies` counts transfers by the source or keeper."""

    delivery_ratio: float
    copies: float
    copies_to_mules: float
    copies_all_hops: float
    delay_s: float
    delay_median_s: float
    hopcount: float
    joules_most: float
    """Energy spent by the sensor that spent most."""
    lifetime_days: float | None
    """Time until the first sensor died, or None."""


def count_wanted_pairs(world: FieldWorld, created: int) -> int:
    """Number of pairs of an event and a mule that wants it, among the first `created` events."""
    events, top = world.events, world.field.values + 1
    table = np.zeros((top + 1, top + 1), np.int64)
    np.add.at(table, (events.a1[:created] + 1, events.a2[:created] + 1), 1)
    below = table.cumsum(0).cumsum(1)
    return int(below[world.want[:, 0], world.want[:, 1]].sum())


def run_figures(result: SimulationResult, initial_j: float) -> RunFigures:
    """Compute the figures of a run."""
    counts, pairs = result.counts, len(result.delivered)
    created = max(1, counts["created"])
    return RunFigures(
        delivery_ratio=pairs / result.wanted if result.wanted else 0.0,
        copies=counts["by_owner"] / created,
        copies_to_mules=counts["to_mules"] / created,
        copies_all_hops=counts["hops"] / created,
        delay_s=_mean(result.delay_s),
        delay_median_s=float(np.median(result.delay_s)) if pairs else 0.0,
        hopcount=_mean(result.delivered[:, 3]),
        joules_most=float(initial_j - result.energy.min(initial=initial_j)),
        lifetime_days=None if result.first_death_s is None else result.first_death_s / 86_400,
    )


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else 0.0
