"""A sensor's queue: its first `used` places, whoever is to be sent first last of all."""

from __future__ import annotations

from roamcast.collect.simulation.kernels.layout import EXPIRED, MISSING, STRANDED, Row, World, i64, u64
from roamcast.compiled import kernel

__all__ = [
    "add_copy", "demote", "drop_copy", "drop_expired", "first_ready", "forget_mule", "free_for", "has_room",
    "may_go", "strand",
]  # fmt: skip


@kernel
def _precedes(w: World, a: Row, successes: int, event: int, tag: int) -> bool:
    """Whether a copy goes before one with these: fewer successes first, then younger, then by tag."""
    if w.rules[0].by_successes and a.successes != successes:
        return bool(a.successes < successes)
    if a.event != event:
        return bool(a.event > event)
    return bool(a.tag < tag)


@kernel
def _put(w: World, sensor: int, to: int, at: int) -> None:
    """What is at one place to another."""
    w.copy[sensor, to] = w.copy[sensor, at]
    for word in range(w.sent.shape[2]):
        w.sent[sensor, to, word] = w.sent[sensor, at, word]


@kernel
def add_copy(w: World, sensor: int, event: int, tag: int, successes: int, hops: int, arrived: int) -> int:
    """There must be room. Returns its place."""
    queue = w.sensor[sensor]
    at = queue.used
    queue.used += 1
    while at > 0 and _precedes(w, w.copy[sensor, at - 1], successes, event, tag):
        _put(w, sensor, at, at - 1)
        at -= 1
    copy = w.copy[sensor, at]
    copy.event, copy.tag, copy.successes, copy.hops, copy.arrived = event, tag, successes, hops, arrived
    for word in range(w.sent.shape[2]):
        w.sent[sensor, at, word] = u64(0)
    queue.next_expiry = min(queue.next_expiry, w.event[event].expiry)
    return int(at)


@kernel
def _wake_waiting(w: World, sensor: int) -> None:
    """There is room again in a queue that was full: neighbours that wait for that try again."""
    for at in range(w.sensor[sensor].first, w.sensor[sensor + 1].first):
        other = w.link[at].sensor
        if w.sensor[other].alarm >= 0:
            w.sensor[other].alarm = -1
            w.restless[other >> 6] |= u64(1) << u64(other & 63)


@kernel
def drop_copy(w: World, sensor: int, at: int) -> None:
    used = w.sensor[sensor].used
    if used == w.rules[0].room:
        _wake_waiting(w, sensor)
    for k in range(at, used - 1):
        _put(w, sensor, k, k + 1)
    w.sensor[sensor].used = used - 1


@kernel
def demote(w: World, sensor: int, at: int) -> None:
    """A copy has one success more: to where it belongs now."""
    copy = w.copy[sensor, at]
    event, tag, successes, hops, arrived = copy.event, copy.tag, copy.successes + 1, copy.hops, copy.arrived
    for word in range(w.sent.shape[2]):
        w.moved[word] = w.sent[sensor, at, word]
    while at > 0 and _precedes(w, w.copy[sensor, at - 1], successes, event, tag):
        _put(w, sensor, at, at - 1)
        at -= 1
    copy = w.copy[sensor, at]
    copy.event, copy.tag, copy.successes, copy.hops, copy.arrived = event, tag, successes, hops, arrived
    for word in range(w.sent.shape[2]):
        w.sent[sensor, at, word] = w.moved[word]


@kernel
def drop_expired(w: World, sensor: int, tick: int) -> None:
    """What is older than beta goes. To be called before a queue is looked at."""
    queue = w.sensor[sensor]
    if tick < queue.next_expiry:
        return
    soonest = i64(1) << 62
    kept = 0
    for at in range(queue.used):
        expiry = w.event[w.copy[sensor, at].event].expiry
        if expiry <= tick:
            w.counts[EXPIRED if w.copy[sensor, at].tag < 0 else STRANDED] += 1
        else:
            soonest = min(soonest, expiry)
            if kept < at:
                _put(w, sensor, kept, at)
            kept += 1
    if kept < queue.used == w.rules[0].room:
        _wake_waiting(w, sensor)
    queue.used, queue.next_expiry = kept, soonest


@kernel
def has_room(w: World, sensor: int, tick: int) -> bool:
    drop_expired(w, sensor, tick)
    return bool(w.sensor[sensor].used < w.rules[0].room)


@kernel
def strand(w: World, sensor: int, mule: int) -> None:
    """What was on its way up to this mule goes."""
    queue = w.sensor[sensor]
    kept = 0
    for at in range(queue.used):
        if w.copy[sensor, at].tag == mule:
            w.counts[STRANDED] += 1
        else:
            if kept < at:
                _put(w, sensor, kept, at)
            kept += 1
    if kept < queue.used == w.rules[0].room:
        _wake_waiting(w, sensor)
    queue.used = kept


@kernel
def forget_mule(w: World, sensor: int, mule: int) -> None:
    """As if nothing had been sent to it."""
    for at in range(w.sensor[sensor].used):
        w.sent[sensor, at, mule >> 6] &= ~(u64(1) << u64(mule & 63))


@kernel
def free_for(w: World, sensor: int, at: int, word: int) -> int:
    """Of mules of a word of `mask` those that a copy of the owner's may still go to."""
    free = w.mask[word] & ~w.sent[sensor, at, word]
    if w.rules[0].resend == MISSING:
        free &= ~w.known[w.copy[sensor, at].event, word]
    return free  # type: ignore[no-any-return]


@kernel
def may_go(w: World, sensor: int, at: int) -> bool:
    """Whether a copy may go to a mule of `mask`."""
    tag = w.copy[sensor, at].tag
    if tag >= 0:
        return bool((w.mask[tag >> 6] >> u64(tag & 63)) & u64(1))
    free = u64(0)
    for word in range(w.mask.shape[0]):
        free |= free_for(w, sensor, at, word)
    return bool(free)


@kernel
def first_ready(w: World, sensor: int, tick: int) -> int:
    """The first copy in order that may go to a mule of `mask` now, or -1; -2 if one has come only in this tick."""
    drop_expired(w, sensor, tick)
    nothing = -1
    for at in range(w.sensor[sensor].used - 1, -1, -1):
        if may_go(w, sensor, at):
            if w.copy[sensor, at].arrived < tick or w.rules[0].instant:
                return int(at)
            nothing = -2
    return nothing
