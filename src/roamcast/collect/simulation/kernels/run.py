"""The main loop of CET and DG: runs from occurrence to occurrence, and tick by tick while events can be transferred."""

from __future__ import annotations

from typing import Final

from roamcast.collect.simulation.kernels.layout import (
    CREATED,
    DEATH,
    DELIVERED,
    DOWN,
    FULL,
    LOGGED,
    NEW_LEG,
    NEXT_EVENT,
    NEXT_OCCURRENCE,
    RESEND_CELL,
    RETRY_TICK,
    TICK,
    TICK_BEGUN,
    UP,
    FieldState,
    i64,
    u64,
)
from roamcast.collect.simulation.kernels.path_sets import change_leg, lose_sensor, meet_sensor, wake_sensor
from roamcast.collect.simulation.kernels.put_back import put_back_one
from roamcast.collect.simulation.kernels.queues import add_copy, drop_expired, forget_mule, has_room
from roamcast.collect.simulation.kernels.transfers import collect_from_sensors, relay_up
from roamcast.compiled import kernel

__all__ = ["BUFFERS_FULL", "REACHED_TICK", "SENDER_STEP", "SENSOR_DIED", "drop_all_expired", "run_ticks"]

REACHED_TICK: Final = 0
BUFFERS_FULL: Final = 1
"""The output arrays are full: empty them, then call again."""
SENSOR_DIED: Final = 2

SENDER_STEP: Final = 0x9E3779B1
"""The sender that goes first changes from tick to tick by this step."""


@kernel
def _apply_occurrences(s: FieldState, tick: int) -> None:
    at = s.progress[NEXT_OCCURRENCE]
    while at < s.occurrence.shape[0] and s.occurrence[at].tick <= tick:
        occurrence = s.occurrence[at]
        mule = occurrence.mule
        if occurrence.kind == NEW_LEG:
            change_leg(s, mule, occurrence.target, tick)
        elif occurrence.kind == UP:
            meet_sensor(s, mule, occurrence.target, tick)
        elif occurrence.kind == DOWN:
            lose_sensor(s, mule, occurrence.target, tick)
        elif s.rules[0].resend == RESEND_CELL:
            for k in range(s.mule[mule].in_reach):
                forget_mule(s, s.in_reach[mule, k], mule)
                wake_sensor(s, s.in_reach[mule, k])
        at += 1
    s.progress[NEXT_OCCURRENCE] = at


@kernel
def _create_events(s: FieldState, tick: int) -> None:
    at = s.progress[NEXT_EVENT]
    while at < s.event.shape[0] and s.event[at].created <= tick:
        sensor = s.event[at].origin
        s.counts[CREATED] += 1
        if has_room(s, sensor, tick):
            add_copy(s, sensor, at, i64(-1), i64(0), i64(0), tick - 1)
            wake_sensor(s, sensor)
        else:
            s.counts[FULL] += 1
        at += 1
    s.progress[NEXT_EVENT] = at


@kernel
def _relay_range(s: FieldState, first: int, end: int) -> int:
    """Relay from the pending sensors from `first` to `end`, in ascending order. Returns the number of transfers."""
    moved, sensor = 0, first
    while sensor < end:
        rest = s.relay_pending[sensor >> 6] >> u64(sensor & 63)
        if rest == u64(0):
            sensor = ((sensor >> 6) + 1) << 6
            continue
        while rest & u64(1) == u64(0):
            rest >>= u64(1)
            sensor += 1
        if sensor < end:
            relayed = relay_up(s, sensor)
            moved += relayed
            while relayed > 0 and s.rules[0].one_hop and not s.rules[0].one_sent:
                relayed = relay_up(s, sensor)
                moved += relayed
        sensor += 1
    return moved


@kernel
def _retry_waiting(s: FieldState, tick: int) -> None:
    """Let sensors that wait for room retry if a copy has expired."""
    if tick < s.progress[RETRY_TICK]:
        return
    earliest = i64(1) << 62
    for sensor in range(s.pair.shape[1]):
        row = s.sensor[sensor]
        if 0 <= row.retry_at <= tick:
            row.retry_at = -1
            s.relay_pending[sensor >> 6] |= u64(1) << u64(sensor & 63)
        elif row.retry_at >= 0:
            earliest = min(earliest, row.retry_at)
    s.progress[RETRY_TICK] = earliest


@kernel
def _next_tick(s: FieldState, tick: int) -> int:
    """The next tick in which anything can happen."""
    next_tick = i64(1) << 62
    if s.progress[NEXT_OCCURRENCE] < s.occurrence.shape[0]:
        next_tick = s.occurrence[s.progress[NEXT_OCCURRENCE]].tick
    next_tick = min(next_tick, max(tick + 1, s.progress[RETRY_TICK]))
    if s.progress[NEXT_EVENT] < s.event.shape[0]:
        next_tick = min(next_tick, s.event[s.progress[NEXT_EVENT]].created)
    if s.rules[0].instant:
        return int(next_tick)
    for word in range(s.relay_pending.shape[0]):
        if s.relay_pending[word] != u64(0):
            return tick + 1
    for mule in range(s.mule.shape[0]):
        if s.mule[mule].may_collect:
            return tick + 1
        if s.rules[0].put_back and not s.mule[mule].put_back_done:
            next_tick = min(next_tick, max(tick + 1, s.mule[mule].last_received_at + s.rules[0].quiet))
    return int(next_tick)


@kernel
def _round(s: FieldState, tick: int) -> int:
    """One round: mules collect, sensors relay, mules put back one event each. Returns the number of transfers."""
    moved, sensors = 0, s.pair.shape[1]
    for mule in range(s.mule.shape[0]):
        if s.mule[mule].may_collect:
            moved += collect_from_sensors(s, mule)
    first = tick * SENDER_STEP % sensors
    for half in range(2):
        begin, end = (first, sensors) if half == 0 else (0, first)
        moved += _relay_range(s, begin, end)
    if s.rules[0].put_back:
        for mule in range(s.mule.shape[0]):
            moved += put_back_one(s, mule)
    return moved


@kernel
def run_ticks(s: FieldState, until: int, max_transfers: int, until_death: bool) -> int:
    """Run up to the tick `until`. `max_transfers` is the maximum in one `_round`. Returns a status."""
    while True:
        tick = s.progress[TICK]
        if tick >= until:
            return REACHED_TICK
        if s.progress[TICK_BEGUN] == 0:
            _apply_occurrences(s, tick)
            _create_events(s, tick)
            _retry_waiting(s, tick)
            s.progress[TICK_BEGUN] = 1
        if s.progress[DELIVERED] + s.in_reach.size > s.delivered.shape[0]:
            return BUFFERS_FULL
        if s.log.shape[0] > 0 and s.progress[LOGGED] + max_transfers > s.log.shape[0]:
            return BUFFERS_FULL
        moved = _round(s, tick)
        if s.rules[0].instant and moved > 0:
            continue
        s.progress[TICK_BEGUN] = 0
        if until_death and s.progress[DEATH] >= 0:
            return SENSOR_DIED
        s.progress[TICK] = _next_tick(s, tick)


@kernel
def drop_all_expired(s: FieldState, tick: int) -> None:
    """Drop expired copies from all queues."""
    for sensor in range(s.pair.shape[1]):
        drop_expired(s, sensor, tick)
