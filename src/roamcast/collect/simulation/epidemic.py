"""Epidemic as the arrays that its kernels live on."""

from __future__ import annotations

from math import isfinite

import numpy as np

from roamcast.collect.simulation.assembly import assemble, check_memory
from roamcast.collect.simulation.community import find_communities
from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.field import World
from roamcast.collect.simulation.kernels import layout
from roamcast.collect.simulation.kernels.contagion import Crowd
from roamcast.collect.simulation.protocols import DG, Epidemic
from roamcast.collect.simulation.schedule import Schedule

__all__ = ["assemble_crowd"]


def assemble_crowd(
    world: World, protocol: Epidemic, radio: Radio, plan: Schedule, *, log: int
) -> tuple[layout.World, Crowd]:
    """The field, and who has what. Raises InputError for a field so large that this does not fit into memory."""
    sensors, mules, events = world.field.sensors, world.field.mules, len(world.births.time)
    nodes, words = sensors + mules, -(-max(events, 1) // 64)
    check_memory(
        f"Epidemic with {nodes:,} nodes and {events:,} events",
        nodes * (16 * words + 2 * events),
        "take a smaller field or a shorter time",
    )
    state = assemble(world, DG(K=1, beta=protocol.beta), radio, find_communities(world), plan, log=log)
    state.group["for_good"] = 1  # there are no heads
    room = np.full(nodes, protocol.K if isfinite(protocol.K) else 1 << 62, np.int64)
    room[sensors:] = 1 << 62
    return state, Crowd(
        held=np.zeros((nodes, words), np.uint64),
        seen=np.zeros((nodes, words), np.uint64),
        hops=np.zeros((nodes, events), np.uint16),
        used=np.zeros(nodes, np.int64),
        room=room,
        restless=np.zeros(nodes, np.int32),
        got_at=np.full(nodes, -1, np.int64),
        arrived=np.zeros((nodes, 2), np.int64),
        state=np.zeros(2, np.int64),
    )
