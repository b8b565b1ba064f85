"""Small random fields, and the comparison of two runs."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import numpy as np
from hypothesis import strategies as st

from roamcast.collect.protocol.communities import Cell
from roamcast.collect.protocol.rules import CET, DG, Epidemic, SprayAndWait
from roamcast.collect.simulation.field import Field, FieldWorld, SensorEvents, cells_of
from roamcast.collect.simulation.mobility import Legs
from roamcast.collect.simulation.results import SimulationResult
from roamcast.collect.simulation.schedule import TickClock

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
SPRAYS = st.builds(
    SprayAndWait, L=st.sampled_from([1, 2, 5, 16]), K=st.sampled_from([3.0, inf]), beta=st.sampled_from([15.0, inf])
)
SEEDS = st.integers(0, 1 << 32)

LegTuple = tuple[float, float, float, float, float, float, float]


def comparable(result: SimulationResult) -> dict[str, Any]:
    """Return all values of a result in a form that can be compared exactly."""
    assert result.transfers is not None
    return {
        "counts": dict(result.counts),
        "transfers": result.transfers.tolist(),
        "delivered": result.delivered.tolist(),
        "delay_s": result.delay_s.tolist(),
        "energy": result.energy.tolist(),
        "held": result.held,
        "under_way": result.under_way,
        "first_death_s": result.first_death_s,
        "wanted": result.wanted,
        "ended_s": result.ended_s,
    }


def small_world(
    sensors: list[tuple[float, float]],
    legs: list[list[LegTuple]],
    events: list[tuple[float, int]],
    *,
    seed: int = 1,
    **field: Any,
) -> FieldWorld:
    """A field of 10 x 10 cells of 10 m in which every mule wants all events.

    Each mule has a list of legs (start, arrive, end, x0, y0, x1, y1). Events are pairs (time, sensor).
    """
    parameters = Field(
        **{"side": 100.0, "cells": 10, "sensors": len(sensors), "mules": len(legs), "duration_s": 100.0, **field}
    )
    x, y = np.array(sensors, float).reshape(-1, 2).T
    rows = [(mule, *leg) for mule, path in enumerate(legs) for leg in path]
    mule, *rest = (np.array(column, float) for column in zip(*rows, strict=True))
    time, sensor = (np.array(column) for column in zip(*sorted(events), strict=True)) if events else (np.zeros(0),) * 2
    zero = np.zeros(len(events), np.int32)
    return FieldWorld(
        parameters,
        x,
        y,
        Legs(mule.astype(np.int32), *rest),
        SensorEvents(time.astype(float), sensor.astype(np.int32), zero, zero),
        np.full((len(legs), 2), 1, np.int32),
        seed,
    )


def stationary(x: float, y: float, start: float = 0.0, end: float = 100.0) -> LegTuple:
    """A leg of a mule that does not move."""
    return (start, start, end, x, y, x, y)


def cells_by_sensor(world: FieldWorld) -> dict[int, Cell]:
    """The cell of each sensor."""
    columns = cells_of(world.field, world.x, world.y)
    return dict(enumerate(zip(*(column.tolist() for column in columns), strict=True)))


def tick_begin(clock: TickClock, tick: int) -> float:
    """When a tick begins, in seconds."""
    return tick / clock.rate if isfinite(clock.rate) else float(clock.times[tick])
