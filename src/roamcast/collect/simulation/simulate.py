"""Simulates a field under a protocol, with compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.rules import CET, DG, Epidemic, Protocol, SprayAndWait
from roamcast.collect.simulation.communities import Communities, communities_of_one, find_communities
from roamcast.collect.simulation.contacts import Contacts
from roamcast.collect.simulation.field import FieldWorld
from roamcast.collect.simulation.kernel_state import build_epidemic_state, build_field_state
from roamcast.collect.simulation.kernels import layout
from roamcast.collect.simulation.kernels.epidemic import run_epidemic
from roamcast.collect.simulation.kernels.run import BUFFERS_FULL, REACHED_TICK, SENSOR_DIED, drop_all_expired, run_ticks
from roamcast.collect.simulation.results import SimulationResult, count_wanted_pairs
from roamcast.collect.simulation.schedule import Schedule, make_schedule

__all__ = ["simulate"]

Rows = npt.NDArray[np.int64]

_PROGRESS_STEPS = 200


def simulate(
    world: FieldWorld,
    protocol: Protocol,
    radio: Radio | None = None,
    *,
    contacts: Contacts | None = None,
    until_death: bool = False,
    log: bool = False,
    progress: Callable[[float], None] | None = None,
) -> SimulationResult:
    """Run a simulation. The same world, protocol and radio always give the same result, bit for bit.

    `contacts` replace those computed from the geometry. With `until_death` the run ends when the first sensor dies;
    otherwise sensors go on without energy. `log` records all transfers. `progress` is called with the fraction done.

    The kernels are compiled at the first run after an installation, which can take a minute.
    """
    radio = radio or Radio()
    schedule = make_schedule(world, contacts)
    field = world.field
    communities = communities_of_one(world) if isinstance(protocol, DG) else find_communities(world)
    max_transfers = _max_transfers(world, protocol, communities, schedule)
    log_room = max_transfers if log else 0
    if isinstance(protocol, Epidemic | SprayAndWait):
        state, epidemic = build_epidemic_state(world, protocol, radio, schedule, log_room=log_room)
    else:
        state = build_field_state(world, protocol, radio, communities, schedule, log_room=log_room)
        epidemic = None
    delivered, transfers = [], []
    status, ticks = REACHED_TICK, schedule.clock.ticks
    for until in _stop_ticks(ticks):
        status = BUFFERS_FULL  # run at least once
        while status == BUFFERS_FULL:
            if epidemic is None:
                status = run_ticks(state, until, max_transfers, until_death)
            else:
                status = run_epidemic(state, epidemic, until, until_death)
            delivered.append(_drain(state.delivered, state.progress, layout.DELIVERED))
            transfers.append(_drain(state.log, state.progress, layout.LOGGED))
        if progress is not None:
            progress(until / max(1, ticks))
        if status == SENSOR_DIED:
            break
    last = int(state.progress[layout.TICK]) if status == SENSOR_DIED else ticks - 1
    drop_all_expired(state, last)
    held, under_way = (
        _count_copies(state) if epidemic is None else (int(epidemic.queue_length[: field.sensors].sum()), 0)
    )
    counts: dict[str, int] = dict(zip(layout.COUNTS, state.counts.tolist(), strict=True))
    rows = np.concatenate(delivered)
    return SimulationResult(
        counts=counts,
        delivered=rows,
        delay_s=schedule.clock.ends(rows[:, 0]) - world.events.time[rows[:, 2]],
        energy=state.sensor["energy"][: field.sensors].copy(),
        held=held,
        under_way=under_way,
        first_death_s=_end_time(schedule, int(state.progress[layout.DEATH])),
        wanted=count_wanted_pairs(world, counts["created"]),
        ended_s=_end_time(schedule, last) or 0.0,
        transfers=np.concatenate(transfers) if log else None,
    )


def _max_transfers(world: FieldWorld, protocol: Protocol, communities: Communities, schedule: Schedule) -> int:
    """Maximum number of transfers in a round: one pass of collecting, relaying, and putting back along the tree."""
    largest = int(np.diff(communities.first).max(initial=1))
    relayed = max(world.field.sensors, len(communities.neighbour))
    if isinstance(protocol, CET) and protocol.hand_up == "way":
        relayed = world.field.sensors * largest
    return world.field.mules * (schedule.max_reach + 2 * largest + 4) + relayed


def _stop_ticks(ticks: int) -> Iterator[int]:
    return (ticks * step // _PROGRESS_STEPS for step in range(1, _PROGRESS_STEPS + 1))


def _drain(rows: Rows, progress: Rows, counter: int) -> Rows:
    drained = rows[: progress[counter]].copy()
    progress[counter] = 0
    return drained


def _count_copies(state: layout.FieldState) -> tuple[int, int]:
    """Count copies in queues: those of owners, and relayed ones."""
    in_use = np.arange(state.copy.shape[1]) < state.sensor["queue_length"][:-1, None]
    own = int((in_use & (state.copy["for_mule"] < 0)).sum())
    return own, int(in_use.sum()) - own


def _end_time(schedule: Schedule, tick: int) -> float | None:
    return float(schedule.clock.ends(np.array(tick))) if tick >= 0 else None
