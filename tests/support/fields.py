"""Small random fields, and what is compared of two runs."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from hypothesis import strategies as st

from roamcast.collect.simulation.field import Births, Field, World
from roamcast.collect.simulation.mobility import Legs
from roamcast.collect.simulation.outcome import Outcome
from roamcast.collect.simulation.protocols import CET, DG, Epidemic

FIELDS = st.builds(
    Field,
    side=st.just(100.0),
    cells=st.integers(1, 8),
    sensors=st.integers(1, 14),
    mules=st.integers(1, 4),
    gap_s=st.sampled_from([5.0, 20.0]),
    duration_s=st.sampled_from([30.0, 80.0]),
    silence_s=st.just(10.0),
    speed_max=st.sampled_from([3.0, 12.0]),
    pause_max_s=st.just(10.0),
    rate=st.sampled_from([1.0, 2.5, inf]),
)

CETS = st.builds(
    CET,
    K=st.sampled_from([3, 8, 200]),
    alpha=st.sampled_from([0.0, 1.0, 20.0]),
    beta=st.sampled_from([15.0, 2000.0]),
    theta=st.sampled_from([5.0, 9.9998]),
    gamma=st.sampled_from([1.0, 4.0]),
    put_back=st.booleans(),
    quiet_s=st.sampled_from([0.0, 1.0]),
    resend=st.sampled_from(["subscriber", "contact", "missing"]),
    lost_root=st.sampled_from(["rebuild", "cut"]),
    rate_per=st.sampled_from(["node", "receiver", "sender", "link"]),
    hand_up=st.sampled_from(["hop", "way"]),
    left_behind=st.sampled_from(["dropped", "waits"]),
    stores=st.sampled_from(["wanted", "all"]),
    gives=st.sampled_from(["moves", "copies"]),
)
DGS = st.builds(
    DG,
    K=st.sampled_from([3, 200]),
    beta=st.sampled_from([15.0, 2000.0]),
    resend=st.sampled_from(["cell", "contact", "once"]),
    rate_per=st.sampled_from(["node", "receiver", "sender", "link"]),
)
EPIDEMICS = st.builds(Epidemic, K=st.sampled_from([3.0, inf]), beta=st.sampled_from([15.0, inf]))
SEEDS = st.integers(0, 1 << 32)

Way = tuple[float, float, float, float, float, float, float]


def told(outcome: Outcome) -> dict[str, Any]:
    """All of an outcome, in what can be compared to the last bit."""
    assert outcome.transfers is not None
    return {
        "counts": dict(outcome.counts),
        "transfers": outcome.transfers.tolist(),
        "delivered": outcome.delivered.tolist(),
        "delay_s": outcome.delay_s.tolist(),
        "energy": outcome.energy.tolist(),
        "held": outcome.held,
        "under_way": outcome.under_way,
        "first_death_s": outcome.first_death_s,
        "wanted": outcome.wanted,
        "ended_s": outcome.ended_s,
    }


def small_world(
    sensors: list[tuple[float, float]],
    ways: list[list[Way]],
    births: list[tuple[float, int]],
    *,
    seed: int = 1,
    **field: Any,
) -> World:
    """A field of 10 x 10 cells of 10 m, in which every mule wants everything.

    A way is a list of legs (start, arrive, end, x0, y0, x1, y1); a birth is a time and a sensor.
    """
    what = Field(
        **{"side": 100.0, "cells": 10, "sensors": len(sensors), "mules": len(ways), "duration_s": 100.0, **field}
    )
    x, y = np.array(sensors, float).reshape(-1, 2).T
    legs = [(mule, *leg) for mule, way in enumerate(ways) for leg in way]
    mule, *rest = (np.array(column, float) for column in zip(*legs, strict=True))
    time, sensor = (np.array(column) for column in zip(*sorted(births), strict=True)) if births else (np.zeros(0),) * 2
    zero = np.zeros(len(births), np.int32)
    return World(
        what,
        x,
        y,
        Legs(mule.astype(np.int32), *rest),
        Births(time.astype(float), sensor.astype(np.int32), zero, zero),
        np.full((len(ways), 2), 1, np.int32),
        seed,
    )


def standing(x: float, y: float, start: float = 0.0, end: float = 100.0) -> Way:
    """A mule that stays where it is."""
    return (start, start, end, x, y, x, y)
