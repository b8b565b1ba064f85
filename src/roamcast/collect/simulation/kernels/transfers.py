"""Transfers in a tick: to mules, and up the layers of path sets."""

from __future__ import annotations

from math import isnan

from roamcast.collect.simulation.kernels.heads import pay
from roamcast.collect.simulation.kernels.layout import (
    BY_OWNER,
    DELIVERED,
    DUPLICATES,
    HOPS,
    LOGGED,
    RETRY_TICK,
    SPENT,
    TICK,
    TO_MULES,
    FieldState,
    i64,
    u64,
)
from roamcast.collect.simulation.kernels.path_sets import wake_sensor
from roamcast.collect.simulation.kernels.queues import (
    add_copy,
    demote,
    drop_copy,
    drop_expired,
    eligible_mules,
    first_ready,
    has_room,
    is_sendable,
)
from roamcast.compiled import inline_kernel, kernel

__all__ = ["collect_from_sensors", "log_transfer", "relay_up", "send_to_neighbour", "square_to_mule"]


@inline_kernel
def log_transfer(s: FieldState, sender: int, receiver: int, event: int) -> None:
    """Count a transfer, and log it if there is a log."""
    s.counts[HOPS] += 1
    if s.log.shape[0] > 0:
        at = s.progress[LOGGED]
        s.log[at, 0], s.log[at, 1], s.log[at, 2], s.log[at, 3] = s.progress[TICK], sender, receiver, event
        s.progress[LOGGED] = at + 1


@inline_kernel
def send_to_neighbour(s: FieldState, sender: int, link: int, event: int) -> None:
    """Send an event over a link to a neighbour, and pay for it."""
    receiver = s.link[link].sensor
    log_transfer(s, sender, receiver, event)
    pay(s, sender, s.link[link].cost)
    pay(s, receiver, s.rules[0].receive)


@inline_kernel
def square_to_mule(s: FieldState, sensor: int, mule: int) -> float:
    """The squared distance at the beginning of the tick."""
    tick, leg, sensor_row = s.progress[TICK], s.leg[s.mule[mule].leg], s.sensor[sensor]
    if isnan(leg.x0):
        return float(s.rules[0].unknown_square)
    time = s.times[tick] if s.rules[0].instant else tick / s.rules[0].rate
    took = leg.arrive - leg.start
    part = min(max((time - leg.start) / took, 0.0), 1.0) if took > 0 else 1.0
    x = leg.x0 + part * (leg.x1 - leg.x0)
    y = leg.y0 + part * (leg.y1 - leg.y0)
    return float((x - sensor_row.x) ** 2 + (y - sensor_row.y) ** 2)


@kernel
def _mark_forwarded(s: FieldState, sensor: int, at: int, mule: int) -> None:
    """Count a success of an owner's copy, or remove a relayed copy."""
    s.sensor[sensor].sent_at = s.progress[TICK]
    copy = s.copy[sensor, at]
    if copy.for_mule >= 0:
        drop_copy(s, sensor, at)
        return
    s.counts[BY_OWNER] += 1
    s.sent_to[sensor, at, mule >> 6] |= u64(1) << u64(mule & 63)
    if copy.successes + 1 > s.rules[0].alpha:
        drop_copy(s, sensor, at)
        s.counts[SPENT] += 1
    else:
        demote(s, sensor, at)


@kernel
def _receive(s: FieldState, mule: int, event: int, hops: int) -> None:
    """A mule receives an event: remember it, record a delivery if it wants it, store it if it may put it back."""
    bit, mule_row, event_row = u64(1) << u64(mule & 63), s.mule[mule], s.event[event]
    if s.received_by[event, mule >> 6] & bit:
        s.counts[DUPLICATES] += 1
        return
    s.received_by[event, mule >> 6] |= bit
    wanted = event_row.a1 < mule_row.a1 and event_row.a2 < mule_row.a2
    if wanted:
        row = s.progress[DELIVERED]
        s.delivered[row, 0], s.delivered[row, 1] = s.progress[TICK], mule
        s.delivered[row, 2], s.delivered[row, 3] = event, hops
        s.progress[DELIVERED] = row + 1
    is_small = s.community[s.sensor[event_row.origin].community].size <= s.rules[0].gamma
    if s.rules[0].put_back and is_small and (wanted or s.rules[0].stores_all):
        s.stored[mule, mule_row.stored].event = event
        s.stored[mule, mule_row.stored].hops = hops
        mule_row.stored += 1
        mule_row.put_back_done = 0


@inline_kernel
def collect_from_sensors(s: FieldState, mule: int) -> int:
    """Collect from the sensors in reach, round robin: one event, or one from each. Returns the number of events."""
    tick, mule_row = s.progress[TICK], s.mule[mule]
    begin = 0
    while begin < mule_row.in_reach and s.in_reach[mule, begin] <= mule_row.last_sender:
        begin += 1
    for word in range(s.mule_mask.shape[0]):
        s.mule_mask[word] = u64(0)
    s.mule_mask[mule >> 6] = u64(1) << u64(mule & 63)
    waiting = collected = 0
    for step in range(mule_row.in_reach):
        k = begin + step
        sensor = s.in_reach[mule, k - mule_row.in_reach if k >= mule_row.in_reach else k]
        if s.pair[mule, sensor].done:
            continue
        if s.sensor[sensor].sent_at == tick and s.rules[0].one_sent:
            waiting = 1
            continue
        at = first_ready(s, sensor, tick)
        if at >= 0:
            _give_to_mule(s, sensor, at, mule)
            collected += 1
            if s.rules[0].one_received:
                break
        elif at == -1:
            s.pair[mule, sensor].done = 1
        else:
            waiting = 1
    if collected == 0:
        mule_row.may_collect = waiting
    return collected


@kernel
def _give_to_mule(s: FieldState, sensor: int, at: int, mule: int) -> None:
    """Send the copy at an index of the queue to a mule in reach."""
    event, hops = s.copy[sensor, at].event, s.copy[sensor, at].hops + 1
    log_transfer(s, sensor, s.pair.shape[1] + mule, event)
    pay(s, sensor, s.rules[0].send + s.rules[0].loss * square_to_mule(s, sensor, mule))
    s.counts[TO_MULES] += 1
    _receive(s, mule, event, hops)
    _mark_forwarded(s, sensor, at, mule)
    s.mule[mule].last_sender, s.mule[mule].last_received_at = sensor, s.progress[TICK]


@kernel
def _next_upper(s: FieldState, sensor: int, mule: int, tick: int) -> int:
    """The link to the next upper neighbour, round robin. -1: all are full, -2: some received an event in this tick."""
    first, end = s.sensor[sensor].first, s.sensor[sensor + 1].first
    above = s.pair[mule, sensor].layer - 1
    begin, reason = first, -1
    while begin < end and s.link[begin].sensor <= s.sensor[sensor].last_upper:
        begin += 1
    for step in range(end - first):
        at = begin + step
        if at >= end:
            at -= end - first
        other = s.link[at].sensor
        if s.pair[mule, other].layer != above:
            continue
        used = s.sensor[other].received_at == tick if s.rules[0].one_received else s.link[at].used_at == tick
        if used and s.rules[0].one_hop:
            reason = -2
        elif has_room(s, other, tick):
            return int(at)
    return reason


@kernel
def _wait_for_room(s: FieldState, sensor: int) -> None:
    """Set the tick in which to retry: when a copy in a full neighbour's queue expires."""
    retry_at = i64(1) << 62
    for at in range(s.sensor[sensor].first, s.sensor[sensor + 1].first):
        other = s.sensor[s.link[at].sensor]
        if other.queue_length == s.rules[0].room:
            retry_at = min(retry_at, other.next_expiry)
    s.sensor[sensor].retry_at = retry_at
    s.progress[RETRY_TICK] = min(s.progress[RETRY_TICK], retry_at)


@kernel
def _has_upper(s: FieldState, sensor: int, mule: int, tick: int) -> bool:
    """Whether an upper neighbour can take an event for a mule. Checked once; without one the mule leaves the mask."""
    word, bit = mule >> 6, u64(1) << u64(mule & 63)
    if not s.tried_mules[word] & bit:
        s.tried_mules[word] |= bit
        if _next_upper(s, sensor, mule, tick) < 0:
            s.mule_mask[word] &= ~bit
    return bool(s.mule_mask[word] & bit)


@kernel
def _target_mule(s: FieldState, sensor: int, at: int, tick: int) -> int:
    """The mule that a copy is sent to: its own, or the first in contact that may get it and has a path. -1: none."""
    copy, c = s.copy[sensor, at], s.sensor[sensor].community
    if copy.for_mule >= 0:
        return int(copy.for_mule) if _has_upper(s, sensor, copy.for_mule, tick) else -1
    for k in range(s.community[c].mule_count):
        other = s.mules_in_contact[c, k]
        free = eligible_mules(s, sensor, at, other >> 6)
        if (free >> u64(other & 63)) & u64(1) and _has_upper(s, sensor, other, tick):
            return int(other)
    return -1


@kernel
def _stop_relaying(s: FieldState, sensor: int, tick: int) -> None:
    """Nothing can be relayed. Mules still in `mule_mask` have everything; the others wait for upper neighbours."""
    c, full, busy = s.sensor[sensor].community, 0, 0
    for k in range(s.community[c].mule_count):
        mule = s.mules_in_contact[c, k]
        if s.pair[mule, sensor].layer > 1 and not s.pair[mule, sensor].done:
            if (s.mule_mask[mule >> 6] >> u64(mule & 63)) & u64(1):
                s.pair[mule, sensor].done = 1
            else:
                upper = _next_upper(s, sensor, mule, tick)
                full += upper == -1
                busy += upper == -2
    if busy == 0:
        s.relay_pending[sensor >> 6] &= ~(u64(1) << u64(sensor & 63))
        if full > 0:
            _wait_for_room(s, sensor)


@inline_kernel
def relay_up(s: FieldState, sensor: int) -> int:
    """Relay one event to the layer above. Returns the number of events relayed."""
    tick, c = s.progress[TICK], s.sensor[sensor].community
    if s.sensor[sensor].sent_at == tick and s.rules[0].one_sent:
        return 0
    for word in range(s.mule_mask.shape[0]):
        s.mule_mask[word] = s.tried_mules[word] = u64(0)
    for k in range(s.community[c].mule_count):
        mule = s.mules_in_contact[c, k]
        if s.pair[mule, sensor].layer > 1 and not s.pair[mule, sensor].done:
            s.mule_mask[mule >> 6] |= u64(1) << u64(mule & 63)
    s.sensor[sensor].retry_at = -1
    drop_expired(s, sensor, tick)
    has_new_arrival = 0
    for at in range(s.sensor[sensor].queue_length - 1, -1, -1):
        if not is_sendable(s, sensor, at):
            continue
        if s.copy[sensor, at].arrived >= tick and not s.rules[0].instant:
            has_new_arrival = 1
            continue
        target_mule = _target_mule(s, sensor, at, tick)
        if target_mule >= 0:
            _relay_copy(s, sensor, at, target_mule)
            return 1
    if not has_new_arrival:
        _stop_relaying(s, sensor, tick)
    return 0


@kernel
def _relay_copy(s: FieldState, sensor: int, at: int, mule: int) -> None:
    """Relay a copy for a mule by one hop, or towards layer 1 as far as there is room."""
    tick, copy = s.progress[TICK], s.copy[sensor, at]
    here, hops = sensor, copy.hops
    link = _next_upper(s, here, mule, tick)
    while link >= 0:
        receiver = s.link[link].sensor
        s.sensor[here].last_upper, s.link[link].used_at = receiver, tick
        send_to_neighbour(s, here, link, copy.event)
        here, hops = receiver, hops + 1
        link = _next_upper(s, here, mule, tick) if s.rules[0].full_path and s.pair[mule, here].layer > 1 else -1
    s.sensor[here].received_at = tick
    add_copy(s, here, copy.event, mule, copy.successes, hops, tick)
    wake_sensor(s, here)
    _mark_forwarded(s, sensor, at, mule)
