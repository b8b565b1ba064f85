"""A field lives: from one happening to the next, and tick by tick while there is something to transfer."""

from __future__ import annotations

from typing import Final

from roamcast.collect.simulation.kernels.giving import give_back
from roamcast.collect.simulation.kernels.layout import (
    ALARM,
    AT_CELL,
    BIRTH,
    BORN,
    CLOCK,
    DEATH,
    DELIVERED,
    DOWN,
    FULL,
    LEG,
    LOGGED,
    NEXT,
    ROUNDS,
    UP,
    World,
    i64,
    u64,
)
from roamcast.collect.simulation.kernels.paths import change_leg, lose, meet_sensor, wake
from roamcast.collect.simulation.kernels.queueing import add_copy, drop_expired, forget_mule, has_room
from roamcast.collect.simulation.kernels.sending import collect, relay
from roamcast.compiled import kernel

__all__ = ["DIED", "EMPTY_IT", "LIVED", "drop_all_expired", "live"]

LIVED: Final = 0
EMPTY_IT: Final = 1
"""What is handed out fills its arrays: take it, and call again."""
DIED: Final = 2

_RELAY_TURN: Final = 0x9E3779B1


@kernel
def _happen(w: World, tick: int) -> None:
    at = w.clock[NEXT]
    while at < w.happening.shape[0] and w.happening[at].tick <= tick:
        this = w.happening[at]
        mule = this.mule
        if this.kind == LEG:
            change_leg(w, mule, this.what, tick)
        elif this.kind == UP:
            meet_sensor(w, mule, this.what, tick)
        elif this.kind == DOWN:
            lose(w, mule, this.what, tick)
        elif w.rules[0].resend == AT_CELL:
            for k in range(w.mule[mule].near):
                forget_mule(w, w.near[mule, k], mule)
                wake(w, w.near[mule, k])
        at += 1
    w.clock[NEXT] = at


@kernel
def _bear(w: World, tick: int) -> None:
    at = w.clock[BIRTH]
    while at < w.event.shape[0] and w.event[at].born <= tick:
        sensor = w.event[at].origin
        w.counts[BORN] += 1
        if has_room(w, sensor, tick):
            add_copy(w, sensor, at, i64(-1), i64(0), i64(0), tick - 1)
            wake(w, sensor)
        else:
            w.counts[FULL] += 1
        at += 1
    w.clock[BIRTH] = at


@kernel
def _relay_some(w: World, first: int, end: int) -> int:
    """The restless sensors from `first` to `end`, ascending."""
    moved, sensor = 0, first
    while sensor < end:
        rest = w.restless[sensor >> 6] >> u64(sensor & 63)
        if rest == u64(0):
            sensor = ((sensor >> 6) + 1) << 6
            continue
        while rest & u64(1) == u64(0):
            rest >>= u64(1)
            sensor += 1
        if sensor < end:
            handed = relay(w, sensor)
            moved += handed
            while handed > 0 and w.rules[0].one_hop and not w.rules[0].one_sent:
                handed = relay(w, sensor)
                moved += handed
        sensor += 1
    return moved


@kernel
def _ring(w: World, tick: int) -> None:
    """Those that wait for room look whether something has expired."""
    if tick < w.clock[ALARM]:
        return
    soonest = i64(1) << 62
    for sensor in range(w.pair.shape[1]):
        who = w.sensor[sensor]
        if 0 <= who.alarm <= tick:
            who.alarm = -1
            w.restless[sensor >> 6] |= u64(1) << u64(sensor & 63)
        elif who.alarm >= 0:
            soonest = min(soonest, who.alarm)
    w.clock[ALARM] = soonest


@kernel
def _next_tick(w: World, tick: int) -> int:
    """The next one in which anything can happen."""
    soon = i64(1) << 62
    if w.clock[NEXT] < w.happening.shape[0]:
        soon = w.happening[w.clock[NEXT]].tick
    soon = min(soon, max(tick + 1, w.clock[ALARM]))
    if w.clock[BIRTH] < w.event.shape[0]:
        soon = min(soon, w.event[w.clock[BIRTH]].born)
    if w.rules[0].instant:
        return int(soon)
    for word in range(w.restless.shape[0]):
        if w.restless[word] != u64(0):
            return tick + 1
    for mule in range(w.mule.shape[0]):
        if w.mule[mule].thirsty:
            return tick + 1
        if w.rules[0].put_back and not w.mule[mule].content:
            soon = min(soon, max(tick + 1, w.mule[mule].heard_at + w.rules[0].quiet))
    return int(soon)


@kernel
def _round(w: World, tick: int) -> int:
    """Mules take events, sensors hand events up, each mule gives one back. Returns how many moved."""
    moved, sensors = 0, w.pair.shape[1]
    for mule in range(w.mule.shape[0]):
        if w.mule[mule].thirsty:
            moved += collect(w, mule)
    first = tick * _RELAY_TURN % sensors
    for half in range(2):
        begin, end = (first, sensors) if half == 0 else (0, first)
        moved += _relay_some(w, begin, end)
    if w.rules[0].put_back:
        for mule in range(w.mule.shape[0]):
            moved += give_back(w, mule)
    return moved


@kernel
def live(w: World, until: int, spare: int, until_death: bool) -> int:
    """Up to the tick `until`. `spare` is how many transfers there are in one round at most."""
    while True:
        tick = w.clock[CLOCK]
        if tick >= until:
            return LIVED
        if w.clock[ROUNDS] == 0:
            _happen(w, tick)
            _bear(w, tick)
            _ring(w, tick)
            w.clock[ROUNDS] = 1
        if w.clock[DELIVERED] + w.near.size > w.delivered.shape[0]:
            return EMPTY_IT
        if w.log.shape[0] > 0 and w.clock[LOGGED] + spare > w.log.shape[0]:
            return EMPTY_IT
        moved = _round(w, tick)
        if w.rules[0].instant and moved > 0:
            continue
        w.clock[ROUNDS] = 0
        if until_death and w.clock[DEATH] >= 0:
            return DIED
        w.clock[CLOCK] = _next_tick(w, tick)


@kernel
def drop_all_expired(w: World, tick: int) -> None:
    for sensor in range(w.pair.shape[1]):
        drop_expired(w, sensor, tick)
