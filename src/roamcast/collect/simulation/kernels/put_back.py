"""Put-back: mules return events to communities."""

from __future__ import annotations

from roamcast.collect.simulation.kernels.heads import build_tree, pay
from roamcast.collect.simulation.kernels.layout import PUT_BACK, TICK, FieldState, i64, u64
from roamcast.collect.simulation.kernels.path_sets import wake_sensor
from roamcast.collect.simulation.kernels.queues import add_copy, has_room
from roamcast.collect.simulation.kernels.transfers import log_transfer, send_to_neighbour
from roamcast.compiled import inline_kernel, kernel

__all__ = ["put_back_one"]


@kernel
def _remove_stored(s: FieldState, mule: int, at: int) -> None:
    last = s.mule[mule].stored - 1
    s.mule[mule].stored = last
    s.stored[mule, at] = s.stored[mule, last]


@kernel
def _forget_expired(s: FieldState, mule: int, tick: int) -> None:
    at = 0
    while at < s.mule[mule].stored:
        if s.event[s.stored[mule, at].event].expiry <= tick:
            _remove_stored(s, mule, at)
        else:
            at += 1


@kernel
def _select_event(s: FieldState, mule: int, c: int) -> int:
    """The youngest event that the community accepts: neither its own nor put back here before. -1 if there is none."""
    best, youngest = -1, -1
    for at in range(s.mule[mule].stored):
        event = s.stored[mule, at].event
        is_own = s.sensor[s.event[event].origin].community == c
        if event > youngest and not is_own and not (s.put_back_to[event, c >> 6] >> u64(c & 63)) & u64(1):
            best, youngest = at, event
    return best


@kernel
def _receiver(s: FieldState, mule: int, c: int, turn: int, tick: int) -> int:
    """The member number `turn` of those in reach that can receive now; -1 if there are fewer."""
    for n in range(s.mule[mule].in_reach):
        sensor_row = s.sensor[s.in_reach[mule, n]]
        if sensor_row.community == c and (sensor_row.received_at != tick or not s.rules[0].one_received):
            if turn == 0:
                return int(s.in_reach[mule, n])
            turn -= 1
    return -1


@kernel
def _keeper(s: FieldState, c: int, tick: int) -> int:
    """The keeper of the next event, as an index in `tree_order`; -1 if all queues are full."""
    if not s.community[c].has_tree:
        build_tree(s, c)
    first, members = s.community[c].first, s.community[c + 1].first - s.community[c].first
    for step in range(members):
        at = (s.community[c].next_keeper + step) % members
        if has_room(s, s.tree_order[first + at], tick):
            return int(at)
    return -1


@kernel
def _send_along_tree(s: FieldState, sensor: int, other: int, event: int) -> None:
    at = s.sensor[sensor].first
    while s.link[at].sensor != other:
        at += 1
    send_to_neighbour(s, sensor, at, event)


@kernel
def _forward_to_keeper(s: FieldState, sensor: int, keeper: int, event: int) -> None:
    """Send an event along the tree to its keeper, and pay for each hop."""
    up, down, filled = sensor, keeper, 0
    while up != down:
        if s.sensor[down].depth >= s.sensor[up].depth:
            s.worklist[filled] = down
            filled += 1
            down = s.sensor[down].parent
        else:
            up = s.sensor[up].parent
    here = sensor
    while here != up:
        above = s.sensor[here].parent
        _send_along_tree(s, here, above, event)
        here = above
    while filled > 0:
        filled -= 1
        _send_along_tree(s, here, s.worklist[filled], event)
        here = s.worklist[filled]


@kernel
def _tree_distance(s: FieldState, a: int, b: int) -> int:
    steps = 0
    while a != b:
        if s.sensor[a].depth >= s.sensor[b].depth:
            a = s.sensor[a].parent
        else:
            b = s.sensor[b].parent
        steps += 1
    return steps


@kernel
def _put_back_event(s: FieldState, mule: int, c: int, stored: int, receiver: int, at: int) -> None:
    tick, event = s.progress[TICK], s.stored[mule, stored].event
    keeper = s.tree_order[s.community[c].first + at]
    s.community[c].next_keeper = (at + 1) % (s.community[c + 1].first - s.community[c].first)
    hops = s.stored[mule, stored].hops + 1 + _tree_distance(s, receiver, keeper)
    if not s.rules[0].keep_copy:
        _remove_stored(s, mule, stored)
    log_transfer(s, s.pair.shape[1] + mule, receiver, event)
    s.sensor[receiver].received_at = tick
    s.counts[PUT_BACK] += 1
    kept = add_copy(s, keeper, event, i64(-1), i64(0), hops, tick)
    s.sent_to[keeper, kept, mule >> 6] |= u64(1) << u64(mule & 63)
    wake_sensor(s, keeper)
    s.put_back_to[event, c >> 6] |= u64(1) << u64(c & 63)
    pay(s, receiver, s.rules[0].receive)
    _forward_to_keeper(s, receiver, keeper, event)


@inline_kernel
def put_back_one(s: FieldState, mule: int) -> int:
    """Put back one event, if the mule has received nothing for a while. Returns the number of events put back."""
    tick, mule_row = s.progress[TICK], s.mule[mule]
    if mule_row.put_back_done or tick - mule_row.last_received_at < s.rules[0].quiet:
        return 0
    _forget_expired(s, mule, tick)
    blocked = 0
    for k in range(mule_row.communities):
        c = s.communities[mule, k]
        stored = _select_event(s, mule, c) if s.community[c + 1].first - s.community[c].first > 1 else -1
        if stored < 0:
            continue
        ready = 0
        while _receiver(s, mule, c, ready, tick) >= 0:
            ready += 1
        at = _keeper(s, c, tick) if ready > 0 else -1
        if at < 0:
            blocked = 1
            continue
        receiver = _receiver(s, mule, c, mule_row.put_back_count % ready, tick)
        mule_row.put_back_count += 1
        _put_back_event(s, mule, c, stored, receiver, at)
        return 1
    mule_row.put_back_done = 1 - blocked
    return 0
