"""Queues of sensors: the first `queue_length` copies of a row, in ascending priority (the next to send is last)."""

from __future__ import annotations

from roamcast.collect.simulation.kernels.layout import EXPIRED, RESEND_MISSING, STRANDED, FieldState, Row, i64, u64
from roamcast.compiled import inline_kernel, kernel

__all__ = [
    "add_copy", "demote", "drop_copy", "drop_expired", "drop_relayed", "eligible_mules", "first_ready", "forget_mule",
    "has_room", "is_sendable",
]  # fmt: skip


@kernel
def _precedes(s: FieldState, a: Row, successes: int, event: int, for_mule: int) -> bool:
    """Whether a copy has priority over one with these values: fewer successes, then younger, then for a lower mule."""
    if s.rules[0].by_successes and a.successes != successes:
        return bool(a.successes < successes)
    if a.event != event:
        return bool(a.event > event)
    return bool(a.for_mule < for_mule)


@kernel
def _move_copy(s: FieldState, sensor: int, to: int, at: int) -> None:
    """Move the copy at one index to another."""
    s.copy[sensor, to] = s.copy[sensor, at]
    for word in range(s.sent_to.shape[2]):
        s.sent_to[sensor, to, word] = s.sent_to[sensor, at, word]


@inline_kernel
def add_copy(s: FieldState, sensor: int, event: int, for_mule: int, successes: int, hops: int, arrived: int) -> int:
    """Add a copy to a queue that has room. Returns its index."""
    queue = s.sensor[sensor]
    at = queue.queue_length
    queue.queue_length += 1
    while at > 0 and _precedes(s, s.copy[sensor, at - 1], successes, event, for_mule):
        _move_copy(s, sensor, at, at - 1)
        at -= 1
    copy = s.copy[sensor, at]
    copy.event, copy.for_mule, copy.successes, copy.hops, copy.arrived = event, for_mule, successes, hops, arrived
    for word in range(s.sent_to.shape[2]):
        s.sent_to[sensor, at, word] = u64(0)
    queue.next_expiry = min(queue.next_expiry, s.event[event].expiry)
    return int(at)


@kernel
def _wake_waiting(s: FieldState, sensor: int) -> None:
    """A full queue has room again: neighbours that wait for it retry."""
    for at in range(s.sensor[sensor].first, s.sensor[sensor + 1].first):
        other = s.link[at].sensor
        if s.sensor[other].retry_at >= 0:
            s.sensor[other].retry_at = -1
            s.relay_pending[other >> 6] |= u64(1) << u64(other & 63)


@inline_kernel
def drop_copy(s: FieldState, sensor: int, at: int) -> None:
    """Remove a copy from a queue."""
    used = s.sensor[sensor].queue_length
    if used == s.rules[0].room:
        _wake_waiting(s, sensor)
    for k in range(at, used - 1):
        _move_copy(s, sensor, k, k + 1)
    s.sensor[sensor].queue_length = used - 1


@inline_kernel
def demote(s: FieldState, sensor: int, at: int) -> None:
    """Count a success of a copy and move it to its new index."""
    copy = s.copy[sensor, at]
    event, for_mule, successes, hops, arrived = copy.event, copy.for_mule, copy.successes + 1, copy.hops, copy.arrived
    for word in range(s.sent_to.shape[2]):
        s.moved_mules[word] = s.sent_to[sensor, at, word]
    while at > 0 and _precedes(s, s.copy[sensor, at - 1], successes, event, for_mule):
        _move_copy(s, sensor, at, at - 1)
        at -= 1
    copy = s.copy[sensor, at]
    copy.event, copy.for_mule, copy.successes, copy.hops, copy.arrived = event, for_mule, successes, hops, arrived
    for word in range(s.sent_to.shape[2]):
        s.sent_to[sensor, at, word] = s.moved_mules[word]


@inline_kernel
def drop_expired(s: FieldState, sensor: int, tick: int) -> None:
    """Drop copies older than beta. Call this before reading a queue."""
    queue = s.sensor[sensor]
    if tick < queue.next_expiry:
        return
    earliest = i64(1) << 62
    kept = 0
    for at in range(queue.queue_length):
        expiry = s.event[s.copy[sensor, at].event].expiry
        if expiry <= tick:
            s.counts[EXPIRED if s.copy[sensor, at].for_mule < 0 else STRANDED] += 1
        else:
            earliest = min(earliest, expiry)
            if kept < at:
                _move_copy(s, sensor, kept, at)
            kept += 1
    if kept < queue.queue_length == s.rules[0].room:
        _wake_waiting(s, sensor)
    queue.queue_length, queue.next_expiry = kept, earliest


@inline_kernel
def has_room(s: FieldState, sensor: int, tick: int) -> bool:
    """Whether a queue has room, after dropping expired copies."""
    drop_expired(s, sensor, tick)
    return bool(s.sensor[sensor].queue_length < s.rules[0].room)


@inline_kernel
def drop_relayed(s: FieldState, sensor: int, mule: int) -> None:
    """Drop the copies that are being relayed to this mule."""
    queue = s.sensor[sensor]
    kept = 0
    for at in range(queue.queue_length):
        if s.copy[sensor, at].for_mule == mule:
            s.counts[STRANDED] += 1
        else:
            if kept < at:
                _move_copy(s, sensor, kept, at)
            kept += 1
    if kept < queue.queue_length == s.rules[0].room:
        _wake_waiting(s, sensor)
    queue.queue_length = kept


@inline_kernel
def forget_mule(s: FieldState, sensor: int, mule: int) -> None:
    """Forget what was sent to a mule."""
    for at in range(s.sensor[sensor].queue_length):
        s.sent_to[sensor, at, mule >> 6] &= ~(u64(1) << u64(mule & 63))


@inline_kernel
def eligible_mules(s: FieldState, sensor: int, at: int, word: int) -> int:
    """Mules of one word of `mule_mask` that an owner's copy may still be sent to."""
    free = s.mule_mask[word] & ~s.sent_to[sensor, at, word]
    if s.rules[0].resend == RESEND_MISSING:
        free &= ~s.received_by[s.copy[sensor, at].event, word]
    return free  # type: ignore[no-any-return]


@inline_kernel
def is_sendable(s: FieldState, sensor: int, at: int) -> bool:
    """Whether a copy may be sent to a mule of `mule_mask`."""
    for_mule = s.copy[sensor, at].for_mule
    if for_mule >= 0:
        return bool((s.mule_mask[for_mule >> 6] >> u64(for_mule & 63)) & u64(1))
    free = u64(0)
    for word in range(s.mule_mask.shape[0]):
        free |= eligible_mules(s, sensor, at, word)
    return bool(free)


@inline_kernel
def first_ready(s: FieldState, sensor: int, tick: int) -> int:
    """The first copy that may be sent to a mule of `mule_mask` now; -1 if none; -2 if one arrived in this tick."""
    drop_expired(s, sensor, tick)
    reason = -1
    for at in range(s.sensor[sensor].queue_length - 1, -1, -1):
        if is_sendable(s, sensor, at):
            if s.copy[sensor, at].arrived < tick or s.rules[0].instant:
                return int(at)
            reason = -2
    return reason
