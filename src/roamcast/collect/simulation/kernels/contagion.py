"""Epidemic: everybody gives everybody in reach what the other lacks. Nodes are the sensors, then the mules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.kernels.layout import (
    BIRTH,
    BORN,
    BY_OWNER,
    CLOCK,
    DEATH,
    DELIVERED,
    DOWN,
    EXPIRED,
    FULL,
    LEG,
    LOGGED,
    NEXT,
    PUT_BACK,
    ROUNDS,
    TO_MULES,
    UP,
    Bits,
    Integers,
    Ticks,
    World,
    i64,
    u64,
)
from roamcast.collect.simulation.kernels.living import DIED, EMPTY_IT, LIVED
from roamcast.collect.simulation.kernels.paths import insert, remove
from roamcast.collect.simulation.kernels.sending import hop, note, square_to_mule
from roamcast.collect.simulation.kernels.trees import pay
from roamcast.compiled import kernel

__all__ = ["Crowd", "infect"]

_TURN = 0x9E3779B1


class Crowd(NamedTuple):
    """Who has what."""

    held: Bits  # by node: events
    seen: Bits  # by node: events that it has or had
    hops: npt.NDArray[np.uint16]  # by node and event
    used: Ticks  # by node: events held
    room: Ticks  # by node
    restless: Integers  # by node: may have something that another lacks
    got_at: Ticks  # by node
    arrived: Ticks  # node and event: of this tick, not yet to be passed on
    state: Ticks  # how many have arrived; the oldest event that is not expired


@kernel
def _has(bits: Bits, node: int, event: int) -> bool:
    return bool((bits[node, event >> 6] >> u64(event & 63)) & u64(1))


@kernel
def _hold(c: Crowd, node: int, event: int) -> None:
    c.held[node, event >> 6] |= u64(1) << u64(event & 63)
    c.restless[node] = 1


@kernel
def _take(c: Crowd, node: int, event: int, hops: int) -> None:
    c.seen[node, event >> 6] |= u64(1) << u64(event & 63)
    c.used[node] += 1
    c.hops[node, event] = hops


@kernel
def _expire(w: World, c: Crowd, tick: int) -> None:
    """Events die in the order of their birth."""
    event = c.state[1]
    while event < w.event.shape[0] and w.event[event].expiry <= tick:
        for node in range(c.used.shape[0]):
            if _has(c.held, node, event):
                c.held[node, event >> 6] &= ~(u64(1) << u64(event & 63))
                c.used[node] -= 1
                w.counts[EXPIRED] += node < w.pair.shape[1]
        event += 1
    c.state[1] = event


@kernel
def _happen(w: World, c: Crowd, tick: int) -> None:
    at, sensors = w.clock[NEXT], w.pair.shape[1]
    while at < w.happening.shape[0] and w.happening[at].tick <= tick:
        this = w.happening[at]
        who = w.mule[this.mule]
        if this.kind == LEG:
            who.leg = this.what
        elif this.kind == UP:
            w.pair[this.mule, this.what].reach = 1
            insert(w.near, this.mule, who.near, this.what)
            who.near += 1
            c.restless[this.what] = c.restless[sensors + this.mule] = 1
        elif this.kind == DOWN:
            w.pair[this.mule, this.what].reach = 0
            remove(w.near, this.mule, who.near, this.what)
            who.near -= 1
        at += 1
    w.clock[NEXT] = at
    _expire(w, c, tick)
    at = w.clock[BIRTH]
    while at < w.event.shape[0] and w.event[at].born <= tick:
        sensor = w.event[at].origin
        w.counts[BORN] += 1
        if c.used[sensor] < c.room[sensor]:
            _take(c, sensor, at, 0)
            _hold(c, sensor, at)
        else:
            w.counts[FULL] += 1
        at += 1
    w.clock[BIRTH] = at


@kernel
def _linked(w: World, node: int, at: int) -> int:
    """Whom a node hears, by place: mules in reach first, then neighbours. -1: nobody is here, -2: nor further on."""
    sensors, mules = w.pair.shape[1], w.pair.shape[0]
    if node >= sensors:
        return int(w.near[node - sensors, at]) if at < w.mule[node - sensors].near else -2
    if at < mules:
        return sensors + at if w.pair[at, node].reach else -1
    link = w.sensor[node].first + at - mules
    return int(w.link[link].sensor) if link < w.sensor[node + 1].first else -2


@kernel
def _newest(c: Crowd, node: int, other: int, above: int) -> int:
    """The newest event newer than `above` that a node has and the other lacks, or -1."""
    word = c.held.shape[1] - 1
    lowest = max(above + 1, c.state[1]) >> 6
    while word >= lowest:
        bits = c.held[node, word] & ~c.seen[other, word]
        if bits != u64(0):
            bit = 63
            while not (bits >> u64(bit)) & u64(1):
                bit -= 1
            event = (word << 6) + bit
            return event if event > above else -1
        word -= 1
    return -1


@kernel
def _send(w: World, c: Crowd, node: int, tick: int) -> int:
    """A node sends the newest event that somebody lacks and can take. Returns how many it sent."""
    best, to, link, blocked, at = -1, -1, -1, 0, 0
    while True:
        other = _linked(w, node, at)
        if other == -2:
            break
        if other >= 0:
            if c.used[other] < c.room[other] and (c.got_at[other] != tick or w.rules[0].instant):
                event = _newest(c, node, other, best)
                if event >= 0:
                    best, to, link = event, other, at
            else:
                blocked = 1
        at += 1
    if best < 0:
        c.restless[node] = blocked
        return 0
    sensors, hops = w.pair.shape[1], c.hops[node, best] + 1
    w.counts[BY_OWNER] += node == w.event[best].origin
    if to >= sensors:
        mule = to - sensors
        note(w, node, to, best)
        pay(w, node, w.rules[0].send + w.rules[0].loss * square_to_mule(w, node, mule))
        w.counts[TO_MULES] += 1
        if w.event[best].a1 < w.mule[mule].a1 and w.event[best].a2 < w.mule[mule].a2:
            row = w.clock[DELIVERED]
            w.delivered[row, 0], w.delivered[row, 1], w.delivered[row, 2], w.delivered[row, 3] = tick, mule, best, hops
            w.clock[DELIVERED] = row + 1
    elif node >= sensors:
        note(w, node, to, best)
        w.counts[PUT_BACK] += 1
        pay(w, to, w.rules[0].receive)
    else:
        hop(w, node, w.sensor[node].first + link - w.pair.shape[0], best)
    c.got_at[to] = tick
    _take(c, to, best, hops)
    if w.rules[0].instant:
        _hold(c, to, best)
    else:
        c.arrived[c.state[0], 0], c.arrived[c.state[0], 1] = to, best
        c.state[0] += 1
    return 1


@kernel
def _round(w: World, c: Crowd, tick: int) -> int:
    moved, nodes = 0, c.used.shape[0]
    first = tick * _TURN % nodes
    for step in range(nodes):
        node = first + step
        if node >= nodes:
            node -= nodes
        if c.restless[node]:
            moved += _send(w, c, node, tick)
    for at in range(c.state[0]):
        _hold(c, c.arrived[at, 0], c.arrived[at, 1])
    c.state[0] = 0
    return moved


@kernel
def _next_tick(w: World, c: Crowd, tick: int) -> int:
    soon = i64(1) << 62
    if w.clock[NEXT] < w.happening.shape[0]:
        soon = w.happening[w.clock[NEXT]].tick
    if w.clock[BIRTH] < w.event.shape[0]:
        soon = min(soon, w.event[w.clock[BIRTH]].born)
    if not w.rules[0].instant:
        for node in range(c.used.shape[0]):
            if c.restless[node]:
                return tick + 1
    return int(soon)


@kernel
def infect(w: World, c: Crowd, until: int, until_death: bool) -> int:
    """Up to the tick `until`; as `living.live`."""
    while True:
        tick = w.clock[CLOCK]
        if tick >= until:
            _expire(w, c, until - 1)
            return LIVED
        if w.clock[ROUNDS] == 0:
            _happen(w, c, tick)
            w.clock[ROUNDS] = 1
        if w.clock[DELIVERED] + c.used.shape[0] > w.delivered.shape[0]:
            return EMPTY_IT
        if w.log.shape[0] > 0 and w.clock[LOGGED] + c.used.shape[0] > w.log.shape[0]:
            return EMPTY_IT
        moved = _round(w, c, tick)
        if w.rules[0].instant and moved > 0:
            continue
        w.clock[ROUNDS] = 0
        if until_death and w.clock[DEATH] >= 0:
            return DIED
        w.clock[CLOCK] = _next_tick(w, c, tick)
