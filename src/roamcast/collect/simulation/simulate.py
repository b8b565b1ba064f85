"""One run of a field under a protocol, compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.assembly import assemble
from roamcast.collect.simulation.community import Communities, find_communities, lone_sensors
from roamcast.collect.simulation.contacts import Contacts
from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.epidemic import assemble_crowd
from roamcast.collect.simulation.field import World
from roamcast.collect.simulation.kernels import layout
from roamcast.collect.simulation.kernels.contagion import infect
from roamcast.collect.simulation.kernels.living import DIED, EMPTY_IT, LIVED, drop_all_expired, live
from roamcast.collect.simulation.outcome import Outcome, wanted_pairs
from roamcast.collect.simulation.protocols import CET, DG, Epidemic, Protocol
from roamcast.collect.simulation.schedule import Schedule, schedule

__all__ = ["simulate"]

Rows = npt.NDArray[np.int64]

_CHUNKS = 200


def simulate(
    world: World,
    protocol: Protocol,
    radio: Radio | None = None,
    *,
    contacts: Contacts | None = None,
    until_death: bool = False,
    log: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """The same world, protocol and radio always give the same outcome, to the last bit.

    With `contacts` these are taken for the geometry. With `until_death` it ends with the first sensor that dies;
    without, sensors go on. `progress` is told now and then which part is done.
    """
    radio = radio or Radio()
    plan = schedule(world, contacts)
    field = world.field
    communities = lone_sensors(world) if isinstance(protocol, DG) else find_communities(world)
    spare = _most_transfers(world, protocol, communities, plan)
    if isinstance(protocol, Epidemic):
        state, crowd = assemble_crowd(world, protocol, radio, plan, log=spare if log else 0)
    else:
        state = assemble(world, protocol, radio, communities, plan, log=spare if log else 0)
        crowd = None
    delivered, transfers = [], []
    status, ticks = LIVED, plan.clock.ticks
    for until in _stops(ticks):
        status = EMPTY_IT
        while status == EMPTY_IT:
            if crowd is None:
                status = live(state, until, spare, until_death)
            else:
                status = infect(state, crowd, until, until_death)
            delivered.append(_taken(state.delivered, state.clock, layout.DELIVERED))
            transfers.append(_taken(state.log, state.clock, layout.LOGGED))
        if progress is not None:
            progress(until / max(1, ticks))
        if status == DIED:
            break
    last = int(state.clock[layout.CLOCK]) if status == DIED else ticks - 1
    drop_all_expired(state, last)
    held, under_way = _held(state) if crowd is None else (int(crowd.used[: field.sensors].sum()), 0)
    return Outcome(
        {count.name: int(state.counts[count]) for count in layout.Count},
        rows := np.concatenate(delivered),
        plan.clock.ends(rows[:, 0]) - world.births.time[rows[:, 2]],
        state.sensor["energy"][: field.sensors].copy(),
        held,
        under_way,
        _end(plan, int(state.clock[layout.DEATH])),
        wanted_pairs(world, int(state.counts[layout.Count.born])),
        _end(plan, last) or 0.0,
        np.concatenate(transfers) if log else None,
    )


def _most_transfers(world: World, protocol: Protocol, communities: Communities, plan: Schedule) -> int:
    """In one round: what mules take, what sensors hand up, and what mules give, with the way along a tree."""
    largest = int(np.diff(communities.first).max(initial=1))
    handed = max(world.field.sensors, len(communities.neighbour))
    if isinstance(protocol, CET) and protocol.hand_up == "way":
        handed = world.field.sensors * largest
    return world.field.mules * (plan.reach + 2 * largest + 4) + handed


def _stops(ticks: int) -> Iterator[int]:
    return (ticks * step // _CHUNKS for step in range(1, _CHUNKS + 1))


def _taken(rows: Rows, clock: Rows, counter: int) -> Rows:
    taken = rows[: clock[counter]].copy()
    clock[counter] = 0
    return taken


def _held(state: layout.World) -> tuple[int, int]:
    """How many copies in queues are their owner's or keeper's, and how many are being handed up."""
    in_use = np.arange(state.copy.shape[1]) < state.sensor["used"][:-1, None]
    own = int((in_use & (state.copy["tag"] < 0)).sum())
    return own, int(in_use.sum()) - own


def _end(plan: Schedule, tick: int) -> float | None:
    return float(plan.clock.ends(np.array(tick))) if tick >= 0 else None
