"""What came of a run, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.field import World

__all__ = ["COUNTS", "Figures", "Outcome", "figures", "wanted_pairs"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

COUNTS = (
    "born", "full", "expired", "spent", "stranded", "by_owner", "to_mules", "hops", "duplicates", "put_back",
    "elections",
)  # fmt: skip
"""`full`, `expired`, `spent`: events whose own or kept copy never got in, grew older than beta, had more than alpha
successes. `stranded`: relayed copies whose contact ended. `by_owner`, `to_mules`, `hops`: sends by source or keeper,
sends to mules, all sends. `duplicates`: what a mule got again. `elections`: heads after the first ones."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`delivered` has a row (tick, mule, event, hops) for each first receipt of an event by a mule that wants it.

    `transfers` has a row (tick, sender, receiver, event) for each send, mules numbered after the sensors, if they were
    asked for. `held` is how many own and kept copies are in queues at the end, `under_way` how many relayed ones.
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
class Figures:
    """Of one run. Copies are given in three readings: `copies` counts sends by source or keeper."""

    delivery_ratio: float
    copies: float
    copies_to_mules: float
    copies_all_hops: float
    delay_s: float
    delay_median_s: float
    hopcount: float
    joules_most: float
    """Spent by the sensor that spent most."""
    lifetime_days: float | None
    """Until the first sensor died, if one did."""


def wanted_pairs(world: World, born: int) -> int:
    """How many pairs of an event and a mule that wants it there are, of the first `born` events."""
    births, top = world.births, world.field.values + 1
    table = np.zeros((top + 1, top + 1), np.int64)
    np.add.at(table, (births.a1[:born] + 1, births.a2[:born] + 1), 1)
    below = table.cumsum(0).cumsum(1)
    return int(below[world.want[:, 0], world.want[:, 1]].sum())


def figures(outcome: Outcome, initial_j: float) -> Figures:
    counts, pairs = outcome.counts, len(outcome.delivered)
    born = max(1, counts["born"])
    return Figures(
        pairs / outcome.wanted if outcome.wanted else 0.0,
        counts["by_owner"] / born,
        counts["to_mules"] / born,
        counts["hops"] / born,
        _mean(outcome.delay_s),
        float(np.median(outcome.delay_s)) if pairs else 0.0,
        _mean(outcome.delivered[:, 3]),
        float(initial_j - outcome.energy.min(initial=initial_j)),
        None if outcome.first_death_s is None else outcome.first_death_s / 86_400,
    )


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else 0.0
