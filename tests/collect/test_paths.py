"""Path sets beside brute force."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from fields import FIELDS, SEEDS
from hypothesis import given
from hypothesis import strategies as st

from roamcast.collect.simulation.assembly import assemble
from roamcast.collect.simulation.community import find_communities
from roamcast.collect.simulation.contacts import entries_of, meetings
from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.field import Field, World, cell_of, draw
from roamcast.collect.simulation.kernels.living import LIVED, live
from roamcast.collect.simulation.protocols import CET
from roamcast.collect.simulation.schedule import schedule

FAR = 10_000


def hops(world: World) -> npt.NDArray[np.int64]:
    """Between each two sensors, by Floyd and Warshall; FAR where there is no way."""
    column, row = cell_of(world.field, world.x, world.y)
    apart = np.maximum(abs(column[:, None] - column), abs(row[:, None] - row))
    found = np.where(apart <= 1, 1, FAR)
    np.fill_diagonal(found, 0)
    for middle in range(world.field.sensors):
        found = np.minimum(found, found[:, [middle]] + found[[middle]])
    return found


def expected(world: World, mule: int, now: int) -> list[int]:
    """The layer of each sensor in the path set to a mule in the tick `now`; 0 for none."""
    clock, legs = schedule(world).clock, world.legs
    contacts = meetings(world, entries_of(world.field, world.legs))
    begin, end = clock.first(contacts.begin), clock.last(contacts.end)
    mine = (contacts.mule == mule) & (begin < end)
    leg = np.flatnonzero((legs.mule == mule) & (clock.first(legs.start) <= now))[-1]
    leg_end = max(clock.first(legs.end[[leg]])[0], clock.first(legs.start[[leg]])[0] + 1)
    met = set(contacts.sensor[mine & (begin <= now) & (end > now)].tolist())
    ahead = set(contacts.sensor[mine & (begin < leg_end) & (end > now)].tolist())
    apart = hops(world)
    layers = []
    for sensor in range(world.field.sensors):
        in_touch = any(apart[sensor, other] < FAR for other in met)
        nearest = min((int(apart[sensor, other]) for other in ahead), default=FAR)
        layers.append(nearest + 1 if in_touch and nearest < FAR else 0)
    return layers


@given(FIELDS, SEEDS, st.integers(1, 80))
def test_path_sets_are_breadth_first_layers(field: Field, seed: int, stop: int) -> None:
    """At any time each sensor's layer is its distance in hops from those that the rest of the leg has in reach."""
    world = draw(field, seed)
    plan = schedule(world)
    until = min(stop, plan.clock.ticks)
    state = assemble(world, CET(), Radio(), find_communities(world), plan, log=0)
    assert live(state, until, 1_000, False) == LIVED
    for mule in range(field.mules):
        assert state.pair["layer"][mule].tolist() == expected(world, mule, until - 1)
