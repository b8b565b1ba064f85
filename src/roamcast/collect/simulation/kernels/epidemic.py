"""Epidemic and Spray-and-Wait: every node sends nodes in reach what they lack.

Nodes are the sensors, followed by the mules.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.kernels.heads import pay
from roamcast.collect.simulation.kernels.layout import (
    BY_OWNER,
    CREATED,
    DEATH,
    DELIVERED,
    DOWN,
    EXPIRED,
    FULL,
    LOGGED,
    NEW_LEG,
    NEXT_EVENT,
    NEXT_OCCURRENCE,
    PUT_BACK,
    TICK,
    TICK_BEGUN,
    TO_MULES,
    UP,
    Bits,
    FieldState,
    Int32s,
    Ticks,
    i64,
    u64,
)
from roamcast.collect.simulation.kernels.path_sets import insert, remove
from roamcast.collect.simulation.kernels.run import BUFFERS_FULL, REACHED_TICK, SENDER_STEP, SENSOR_DIED
from roamcast.collect.simulation.kernels.transfers import log_transfer, send_to_neighbour, square_to_mule
from roamcast.compiled import inline_kernel, kernel

__all__ = ["COPIES", "EpidemicState", "run_epidemic"]


ARRIVED, OLDEST, COPIES = range(3)
"""Indexes into `counters`: the length of `arrived`; the oldest event that has not expired; copies of a new event."""


class EpidemicState(NamedTuple):
    """Which node has which events."""

    held: Bits  # by node: events in its queue
    seen: Bits  # by node: events that it has or had
    hops: npt.NDArray[np.uint16]  # by node and event
    copies: Int32s  # by node and event, with Spray-and-Wait; without, there are no rows
    queue_length: Ticks  # by node: number of events held
    room: Ticks  # by node
    relay_pending: Int32s  # by node: may have something that a neighbour lacks
    received_at: Ticks  # by node
    arrived: Ticks  # node and event: received in this tick, passed on from the next
    counters: Ticks  # by `ARRIVED`, `OLDEST` and `COPIES`


@kernel
def _has(bits: Bits, node: int, event: int) -> bool:
    return bool((bits[node, event >> 6] >> u64(event & 63)) & u64(1))


@kernel
def _mark_held(e: EpidemicState, node: int, event: int) -> None:
    e.held[node, event >> 6] |= u64(1) << u64(event & 63)
    e.relay_pending[node] = 1


@kernel
def _mark_seen(e: EpidemicState, node: int, event: int, hops: int) -> None:
    e.seen[node, event >> 6] |= u64(1) << u64(event & 63)
    e.queue_length[node] += 1
    e.hops[node, event] = hops


@kernel
def _expire(s: FieldState, e: EpidemicState, tick: int) -> None:
    """Drop expired events. They expire in the order of creation."""
    event = e.counters[OLDEST]
    while event < s.event.shape[0] and s.event[event].expiry <= tick:
        for node in range(e.queue_length.shape[0]):
            if _has(e.held, node, event):
                e.held[node, event >> 6] &= ~(u64(1) << u64(event & 63))
                e.queue_length[node] -= 1
                s.counts[EXPIRED] += node < s.pair.shape[1]
        event += 1
    e.counters[OLDEST] = event


@kernel
def _apply_occurrences(s: FieldState, e: EpidemicState, tick: int) -> None:
    at, sensors = s.progress[NEXT_OCCURRENCE], s.pair.shape[1]
    while at < s.occurrence.shape[0] and s.occurrence[at].tick <= tick:
        occurrence = s.occurrence[at]
        mule = s.mule[occurrence.mule]
        if occurrence.kind == NEW_LEG:
            mule.leg = occurrence.target
        elif occurrence.kind == UP:
            s.pair[occurrence.mule, occurrence.target].reach = 1
            insert(s.in_reach, occurrence.mule, mule.in_reach, occurrence.target)
            mule.in_reach += 1
            e.relay_pending[occurrence.target] = e.relay_pending[sensors + occurrence.mule] = 1
        elif occurrence.kind == DOWN:
            s.pair[occurrence.mule, occurrence.target].reach = 0
            remove(s.in_reach, occurrence.mule, mule.in_reach, occurrence.target)
            mule.in_reach -= 1
        at += 1
    s.progress[NEXT_OCCURRENCE] = at
    _expire(s, e, tick)
    at = s.progress[NEXT_EVENT]
    while at < s.event.shape[0] and s.event[at].created <= tick:
        sensor = s.event[at].origin
        s.counts[CREATED] += 1
        if e.queue_length[sensor] < e.room[sensor]:
            _mark_seen(e, sensor, at, 0)
            if e.copies.shape[0] > 0:
                e.copies[sensor, at] = e.counters[COPIES]
            _mark_held(e, sensor, at)
        else:
            s.counts[FULL] += 1
        at += 1
    s.progress[NEXT_EVENT] = at


@kernel
def _neighbour_at(s: FieldState, node: int, at: int) -> int:
    """The neighbour of a node at an index: mules in reach, then sensors. -1: none at this index, -2: no more."""
    sensors, mules = s.pair.shape[1], s.pair.shape[0]
    if node >= sensors:
        return int(s.in_reach[node - sensors, at]) if at < s.mule[node - sensors].in_reach else -2
    if at < mules:
        return sensors + at if s.pair[at, node].reach else -1
    link = s.sensor[node].first + at - mules
    return int(s.link[link].sensor) if link < s.sensor[node + 1].first else -2


@inline_kernel
def _is_wanted(s: FieldState, node: int, event: int) -> bool:
    """Whether a node is a mule that wants an event."""
    mule = node - s.pair.shape[1]
    return bool(mule >= 0 and s.event[event].a1 < s.mule[mule].a1 and s.event[event].a2 < s.mule[mule].a2)


@kernel
def _newest_missing(s: FieldState, e: EpidemicState, node: int, other: int, above: int) -> int:
    """The newest event, newer than `above`, that a node may send and the other lacks, or -1."""
    word = e.held.shape[1] - 1
    lowest = max(above + 1, e.counters[OLDEST]) >> 6
    while word >= lowest:
        bits = e.held[node, word] & ~e.seen[other, word]
        bit = 63
        while bits != u64(0):
            while not (bits >> u64(bit)) & u64(1):
                bit -= 1
            event = (word << 6) + bit
            if event <= above:
                return -1
            if e.copies.shape[0] == 0 or e.copies[node, event] > 1 or _is_wanted(s, other, event):
                return int(event)
            bits &= ~(u64(1) << u64(bit))
        word -= 1
    return -1


@kernel
def _send(s: FieldState, e: EpidemicState, node: int, tick: int) -> int:
    """Send the newest event that a neighbour lacks and has room for. Returns the number of events sent."""
    best, to, link, blocked, at = -1, -1, -1, 0, 0
    while True:
        other = _neighbour_at(s, node, at)
        if other == -2:
            break
        if other >= 0:
            if e.queue_length[other] < e.room[other] and (e.received_at[other] != tick or s.rules[0].instant):
                event = _newest_missing(s, e, node, other, best)
                if event >= 0:
                    best, to, link = event, other, at
            else:
                blocked = 1
        at += 1
    if best < 0:
        e.relay_pending[node] = blocked
        return 0
    sensors, hops = s.pair.shape[1], e.hops[node, best] + 1
    s.counts[BY_OWNER] += node == s.event[best].origin
    if to >= sensors:
        mule = to - sensors
        log_transfer(s, node, to, best)
        pay(s, node, s.rules[0].send + s.rules[0].loss * square_to_mule(s, node, mule))
        s.counts[TO_MULES] += 1
        if _is_wanted(s, to, best):
            row = s.progress[DELIVERED]
            s.delivered[row, 0], s.delivered[row, 1], s.delivered[row, 2], s.delivered[row, 3] = tick, mule, best, hops
            s.progress[DELIVERED] = row + 1
    elif node >= sensors:
        log_transfer(s, node, to, best)
        s.counts[PUT_BACK] += 1
        pay(s, to, s.rules[0].receive)
    else:
        send_to_neighbour(s, node, s.sensor[node].first + link - s.pair.shape[0], best)
    e.received_at[to] = tick
    if e.copies.shape[0] > 0:
        given = e.copies[node, best] // 2
        e.copies[node, best] -= given
        e.copies[to, best] = given
    _mark_seen(e, to, best, hops)
    if s.rules[0].instant:
        _mark_held(e, to, best)
    else:
        e.arrived[e.counters[ARRIVED], 0], e.arrived[e.counters[ARRIVED], 1] = to, best
        e.counters[ARRIVED] += 1
    return 1


@kernel
def _round(s: FieldState, e: EpidemicState, tick: int) -> int:
    moved, nodes = 0, e.queue_length.shape[0]
    first = tick * SENDER_STEP % nodes
    for step in range(nodes):
        node = first + step
        if node >= nodes:
            node -= nodes
        if e.relay_pending[node]:
            moved += _send(s, e, node, tick)
    for at in range(e.counters[ARRIVED]):
        _mark_held(e, e.arrived[at, 0], e.arrived[at, 1])
    e.counters[ARRIVED] = 0
    return moved


@kernel
def _next_tick(s: FieldState, e: EpidemicState, tick: int) -> int:
    next_tick = i64(1) << 62
    if s.progress[NEXT_OCCURRENCE] < s.occurrence.shape[0]:
        next_tick = s.occurrence[s.progress[NEXT_OCCURRENCE]].tick
    if s.progress[NEXT_EVENT] < s.event.shape[0]:
        next_tick = min(next_tick, s.event[s.progress[NEXT_EVENT]].created)
    if not s.rules[0].instant:
        for node in range(e.queue_length.shape[0]):
            if e.relay_pending[node]:
                return tick + 1
    return int(next_tick)


@kernel
def run_epidemic(s: FieldState, e: EpidemicState, until: int, until_death: bool) -> int:
    """Run up to the tick `until`, like `run.run_ticks`."""
    while True:
        tick = s.progress[TICK]
        if tick >= until:
            _expire(s, e, until - 1)
            return REACHED_TICK
        if s.progress[TICK_BEGUN] == 0:
            _apply_occurrences(s, e, tick)
            s.progress[TICK_BEGUN] = 1
        if s.progress[DELIVERED] + e.queue_length.shape[0] > s.delivered.shape[0]:
            return BUFFERS_FULL
        if s.log.shape[0] > 0 and s.progress[LOGGED] + e.queue_length.shape[0] > s.log.shape[0]:
            return BUFFERS_FULL
        moved = _round(s, e, tick)
        if s.rules[0].instant and moved > 0:
            continue
        s.progress[TICK_BEGUN] = 0
        if until_death and s.progress[DEATH] >= 0:
            return SENSOR_DIED
        s.progress[TICK] = _next_tick(s, e, tick)
