"""What is sent in a tick: to mules, and up the layers."""

from __future__ import annotations

from math import isnan

from roamcast.collect.simulation.kernels.layout import (
    ALARM,
    BY_OWNER,
    CLOCK,
    DELIVERED,
    DUPLICATES,
    HOPS,
    LOGGED,
    SPENT,
    TO_MULES,
    World,
    i64,
    u64,
)
from roamcast.collect.simulation.kernels.paths import wake
from roamcast.collect.simulation.kernels.queueing import (
    add_copy,
    demote,
    drop_copy,
    drop_expired,
    first_ready,
    free_for,
    has_room,
    may_go,
)
from roamcast.collect.simulation.kernels.trees import pay
from roamcast.compiled import kernel

__all__ = ["collect", "hop", "note", "relay", "square_to_mule"]


@kernel
def note(w: World, sender: int, receiver: int, event: int) -> None:
    """Count a transfer, and log it where that is asked for."""
    w.counts[HOPS] += 1
    if w.log.shape[0] > 0:
        at = w.clock[LOGGED]
        w.log[at, 0], w.log[at, 1], w.log[at, 2], w.log[at, 3] = w.clock[CLOCK], sender, receiver, event
        w.clock[LOGGED] = at + 1


@kernel
def hop(w: World, sender: int, at: int, event: int) -> None:
    """From a sensor to a neighbour, by the link."""
    receiver = w.link[at].sensor
    note(w, sender, receiver, event)
    pay(w, sender, w.link[at].cost)
    pay(w, receiver, w.rules[0].receive)


@kernel
def square_to_mule(w: World, sensor: int, mule: int) -> float:
    """The square of the distance at the beginning of the tick."""
    tick, path, who = w.clock[CLOCK], w.path[w.mule[mule].leg], w.sensor[sensor]
    if isnan(path.x0):
        return float(w.rules[0].unknown)
    time = w.times[tick] if w.rules[0].instant else tick / w.rules[0].rate
    took = path.arrive - path.start
    part = min(max((time - path.start) / took, 0.0), 1.0) if took > 0 else 1.0
    x = path.x0 + part * (path.x1 - path.x0)
    y = path.y0 + part * (path.y1 - path.y0)
    return float((x - who.x) ** 2 + (y - who.y) ** 2)


@kernel
def _forwarded(w: World, sensor: int, at: int, mule: int) -> None:
    """The owner keeps its copy and counts a success; a relayed copy is gone."""
    w.sensor[sensor].sent_at = w.clock[CLOCK]
    copy = w.copy[sensor, at]
    if copy.tag >= 0:
        drop_copy(w, sensor, at)
        return
    w.counts[BY_OWNER] += 1
    w.sent[sensor, at, mule >> 6] |= u64(1) << u64(mule & 63)
    if copy.successes + 1 > w.rules[0].alpha:
        drop_copy(w, sensor, at)
        w.counts[SPENT] += 1
    else:
        demote(w, sensor, at)


@kernel
def _receive(w: World, mule: int, event: int, hops: int) -> None:
    """A mule remembers for ever what it has received, and keeps what it wants, or may put back."""
    bit, who, what = u64(1) << u64(mule & 63), w.mule[mule], w.event[event]
    if w.known[event, mule >> 6] & bit:
        w.counts[DUPLICATES] += 1
        return
    w.known[event, mule >> 6] |= bit
    wanted = what.a1 < who.a1 and what.a2 < who.a2
    if wanted:
        row = w.clock[DELIVERED]
        w.delivered[row, 0], w.delivered[row, 1] = w.clock[CLOCK], mule
        w.delivered[row, 2], w.delivered[row, 3] = event, hops
        w.clock[DELIVERED] = row + 1
    is_small = w.group[w.sensor[what.origin].group].size <= w.rules[0].gamma
    if w.rules[0].put_back and is_small and (wanted or w.rules[0].stores_all):
        w.stored[mule, who.stored].event = event
        w.stored[mule, who.stored].hops = hops
        who.stored += 1
        who.content = 0


@kernel
def collect(w: World, mule: int) -> int:
    """A mule takes an event from one of the sensors in reach, in turn; or one from each. Returns how many it took."""
    tick, who = w.clock[CLOCK], w.mule[mule]
    begin = 0
    while begin < who.near and w.near[mule, begin] <= who.last_sender:
        begin += 1
    for word in range(w.mask.shape[0]):
        w.mask[word] = u64(0)
    w.mask[mule >> 6] = u64(1) << u64(mule & 63)
    waiting = taken = 0
    for step in range(who.near):
        at = begin + step
        sensor = w.near[mule, at - who.near if at >= who.near else at]
        if w.pair[mule, sensor].done:
            continue
        if w.sensor[sensor].sent_at == tick and w.rules[0].one_sent:
            waiting = 1
            continue
        copy = first_ready(w, sensor, tick)
        if copy >= 0:
            _hand_over(w, sensor, copy, mule)
            taken += 1
            if w.rules[0].one_got:
                break
        elif copy == -1:
            w.pair[mule, sensor].done = 1
        else:
            waiting = 1
    if taken == 0:
        who.thirsty = waiting
    return taken


@kernel
def _hand_over(w: World, sensor: int, place: int, mule: int) -> None:
    event, hops = w.copy[sensor, place].event, w.copy[sensor, place].hops + 1
    note(w, sensor, w.pair.shape[1] + mule, event)
    pay(w, sensor, w.rules[0].send + w.rules[0].loss * square_to_mule(w, sensor, mule))
    w.counts[TO_MULES] += 1
    _receive(w, mule, event, hops)
    _forwarded(w, sensor, place, mule)
    w.mule[mule].last_sender, w.mule[mule].heard_at = sensor, w.clock[CLOCK]


@kernel
def _next_upper(w: World, sensor: int, mule: int, tick: int) -> int:
    """Round robin over those above that can take an event: the link; -1: all are full, -2: some have just got one."""
    first, end = w.sensor[sensor].first, w.sensor[sensor + 1].first
    above = w.pair[mule, sensor].layer - 1
    begin, none = first, -1
    while begin < end and w.link[begin].sensor <= w.sensor[sensor].upper:
        begin += 1
    for step in range(end - first):
        at = begin + step
        if at >= end:
            at -= end - first
        other = w.link[at].sensor
        if w.pair[mule, other].layer != above:
            continue
        used = w.sensor[other].got_at == tick if w.rules[0].one_got else w.link[at].used_at == tick
        if used and w.rules[0].one_hop:
            none = -2
        elif has_room(w, other, tick):
            return int(at)
    return none


@kernel
def _wait_for_room(w: World, sensor: int) -> None:
    """It is woken when a neighbour's queue is no longer full; and looks again when something in one expires."""
    alarm = i64(1) << 62
    for at in range(w.sensor[sensor].first, w.sensor[sensor + 1].first):
        other = w.sensor[w.link[at].sensor]
        if other.used == w.rules[0].room:
            alarm = min(alarm, other.next_expiry)
    w.sensor[sensor].alarm = alarm
    w.clock[ALARM] = min(w.clock[ALARM], alarm)


@kernel
def _has_way(w: World, sensor: int, mule: int, tick: int) -> bool:
    """Whether somebody above can take an event for a mule of `mask`. It is tried once; who has none leaves the mask."""
    word, bit = mule >> 6, u64(1) << u64(mule & 63)
    if not w.tried[word] & bit:
        w.tried[word] |= bit
        if _next_upper(w, sensor, mule, tick) < 0:
            w.mask[word] &= ~bit
    return bool(w.mask[word] & bit)


@kernel
def _mule_of(w: World, sensor: int, at: int, tick: int) -> int:
    """Whom a copy goes to: whom it is for, or the first in contact that may have it and has a way; -1 for nobody."""
    copy, g = w.copy[sensor, at], w.sensor[sensor].group
    if copy.tag >= 0:
        return int(copy.tag) if _has_way(w, sensor, copy.tag, tick) else -1
    for k in range(w.group[g].contacts):
        other = w.contact[g, k]
        free = free_for(w, sensor, at, other >> 6)
        if (free >> u64(other & 63)) & u64(1) and _has_way(w, sensor, other, tick):
            return int(other)
    return -1


@kernel
def _rest(w: World, sensor: int, tick: int) -> None:
    """Nothing can be handed up. Who is still in `mask` has all there is; the others wait for those above."""
    g, full, busy = w.sensor[sensor].group, 0, 0
    for k in range(w.group[g].contacts):
        mule = w.contact[g, k]
        if w.pair[mule, sensor].layer > 1 and not w.pair[mule, sensor].done:
            if (w.mask[mule >> 6] >> u64(mule & 63)) & u64(1):
                w.pair[mule, sensor].done = 1
            else:
                upper = _next_upper(w, sensor, mule, tick)
                full += upper == -1
                busy += upper == -2
    if busy == 0:
        w.restless[sensor >> 6] &= ~(u64(1) << u64(sensor & 63))
        if full > 0:
            _wait_for_room(w, sensor)


@kernel
def relay(w: World, sensor: int) -> int:
    """A sensor hands one event up to the layer above. Returns how many it handed up."""
    tick, g = w.clock[CLOCK], w.sensor[sensor].group
    if w.sensor[sensor].sent_at == tick and w.rules[0].one_sent:
        return 0
    for word in range(w.mask.shape[0]):
        w.mask[word] = w.tried[word] = u64(0)
    for k in range(w.group[g].contacts):
        mule = w.contact[g, k]
        if w.pair[mule, sensor].layer > 1 and not w.pair[mule, sensor].done:
            w.mask[mule >> 6] |= u64(1) << u64(mule & 63)
    w.sensor[sensor].alarm = -1
    drop_expired(w, sensor, tick)
    fresh = 0
    for place in range(w.sensor[sensor].used - 1, -1, -1):
        if not may_go(w, sensor, place):
            continue
        if w.copy[sensor, place].arrived >= tick and not w.rules[0].instant:
            fresh = 1
            continue
        to = _mule_of(w, sensor, place, tick)
        if to >= 0:
            _hand_up(w, sensor, place, to)
            return 1
    if not fresh:
        _rest(w, sensor, tick)
    return 0


@kernel
def _hand_up(w: World, sensor: int, place: int, to: int) -> None:
    """By one hop; or to layer 1, as far as there is room."""
    tick, copy = w.clock[CLOCK], w.copy[sensor, place]
    here, hops = sensor, copy.hops
    at = _next_upper(w, here, to, tick)
    while at >= 0:
        receiver = w.link[at].sensor
        w.sensor[here].upper, w.link[at].used_at = receiver, tick
        hop(w, here, at, copy.event)
        here, hops = receiver, hops + 1
        at = _next_upper(w, here, to, tick) if w.rules[0].way and w.pair[to, here].layer > 1 else -1
    w.sensor[here].got_at = tick
    add_copy(w, here, copy.event, to, copy.successes, hops, tick)
    wake(w, here)
    _forwarded(w, sensor, place, to)
