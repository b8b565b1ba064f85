"""Path sets agree with distances computed by brute force."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from fields import FIELDS, SEEDS
from hypothesis import given
from hypothesis import strategies as st

from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.rules import CET
from roamcast.collect.simulation.communities import find_communities
from roamcast.collect.simulation.contacts import cell_entries, find_contacts
from roamcast.collect.simulation.field import Field, FieldWorld, cells_of, draw_world
from roamcast.collect.simulation.kernel_state import build_field_state
from roamcast.collect.simulation.kernels.run import REACHED_TICK, run_ticks
from roamcast.collect.simulation.schedule import make_schedule

FAR = 10_000


def hops(world: FieldWorld) -> npt.NDArray[np.int64]:
    """Hops between each two sensors (Floyd–Warshall); FAR if they are not connected."""
    column, row = cells_of(world.field, world.x, world.y)
    apart = np.maximum(abs(column[:, None] - column), abs(row[:, None] - row))
    distance = np.where(apart <= 1, 1, FAR)
    np.fill_diagonal(distance, 0)
    for middle in range(world.field.sensors):
        distance = np.minimum(distance, distance[:, [middle]] + distance[[middle]])
    return distance


def expected(world: FieldWorld, mule: int, now: int) -> list[int]:
    """The layer of each sensor in the path set to a mule in the tick `now`; 0 for none."""
    clock, legs = make_schedule(world).clock, world.legs
    contacts = find_contacts(world, cell_entries(world.field, world.legs))
    begin, end = clock.first(contacts.begin), clock.usable_before(contacts.end)
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
    """A sensor's layer is its distance in hops from the sensors that the rest of the leg reaches."""
    world = draw_world(field, seed)
    schedule = make_schedule(world)
    until = min(stop, schedule.clock.ticks)
    state = build_field_state(world, CET(), Radio(), find_communities(world), schedule, log_room=0)
    assert run_ticks(state, until, 1_000, False) == REACHED_TICK
    for mule in range(field.mules):
        assert state.pair["layer"][mule].tolist() == expected(world, mule, until - 1)
