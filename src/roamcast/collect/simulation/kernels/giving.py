"""Put-back: what mules give to communities."""

from __future__ import annotations

from roamcast.collect.simulation.kernels.layout import CLOCK, PUT_BACK, World, i64, u64
from roamcast.collect.simulation.kernels.paths import wake
from roamcast.collect.simulation.kernels.queueing import add_copy, has_room
from roamcast.collect.simulation.kernels.sending import hop, note
from roamcast.collect.simulation.kernels.trees import grow_tree, pay
from roamcast.compiled import kernel

__all__ = ["give_back"]


@kernel
def _take_out(w: World, mule: int, at: int) -> None:
    last = w.mule[mule].stored - 1
    w.mule[mule].stored = last
    w.stored[mule, at] = w.stored[mule, last]


@kernel
def _forget_expired(w: World, mule: int, tick: int) -> None:
    at = 0
    while at < w.mule[mule].stored:
        if w.event[w.stored[mule, at].event].expiry <= tick:
            _take_out(w, mule, at)
        else:
            at += 1


@kernel
def _gift(w: World, mule: int, g: int) -> int:
    """The youngest event that the community takes: not its own, and nothing that was put back here before; or -1."""
    best, youngest = -1, -1
    for at in range(w.mule[mule].stored):
        event = w.stored[mule, at].event
        is_own = w.sensor[w.event[event].origin].group == g
        if event > youngest and not is_own and not (w.kept[event, g >> 6] >> u64(g & 63)) & u64(1):
            best, youngest = at, event
    return best


@kernel
def _receiver(w: World, mule: int, g: int, turn: int, tick: int) -> int:
    """The one whose turn it is of the members in reach that can receive now; -1 if there are fewer."""
    for n in range(w.mule[mule].near):
        who = w.sensor[w.near[mule, n]]
        if who.group == g and (who.got_at != tick or not w.rules[0].one_got):
            if turn == 0:
                return int(w.near[mule, n])
            turn -= 1
    return -1


@kernel
def _keeper(w: World, g: int, tick: int) -> int:
    """Who keeps the next event, as a place in the tree's order; -1 if all queues are full."""
    if not w.group[g].has_tree:
        grow_tree(w, g)
    first, members = w.group[g].first, w.group[g + 1].first - w.group[g].first
    for step in range(members):
        place = (w.group[g].turn + step) % members
        if has_room(w, w.order[first + place], tick):
            return int(place)
    return -1


@kernel
def _to_neighbour(w: World, sensor: int, other: int, event: int) -> None:
    at = w.sensor[sensor].first
    while w.link[at].sensor != other:
        at += 1
    hop(w, sensor, at, event)


@kernel
def _carry(w: World, sensor: int, keeper: int, event: int) -> None:
    """Along the tree, up and down, paying for each hop."""
    up, down, filled = sensor, keeper, 0
    while up != down:
        if w.sensor[down].depth >= w.sensor[up].depth:
            w.line[filled] = down
            filled += 1
            down = w.sensor[down].parent
        else:
            up = w.sensor[up].parent
    here = sensor
    while here != up:
        above = w.sensor[here].parent
        _to_neighbour(w, here, above, event)
        here = above
    while filled > 0:
        filled -= 1
        _to_neighbour(w, here, w.line[filled], event)
        here = w.line[filled]


@kernel
def _tree_distance(w: World, a: int, b: int) -> int:
    steps = 0
    while a != b:
        if w.sensor[a].depth >= w.sensor[b].depth:
            a = w.sensor[a].parent
        else:
            b = w.sensor[b].parent
        steps += 1
    return steps


@kernel
def _give(w: World, mule: int, g: int, at: int, receiver: int, place: int) -> None:
    tick, event = w.clock[CLOCK], w.stored[mule, at].event
    keeper = w.order[w.group[g].first + place]
    w.group[g].turn = (place + 1) % (w.group[g + 1].first - w.group[g].first)
    hops = w.stored[mule, at].hops + 1 + _tree_distance(w, receiver, keeper)
    if not w.rules[0].copies:
        _take_out(w, mule, at)
    note(w, w.pair.shape[1] + mule, receiver, event)
    w.sensor[receiver].got_at = tick
    w.counts[PUT_BACK] += 1
    kept = add_copy(w, keeper, event, i64(-1), i64(0), hops, tick)
    w.sent[keeper, kept, mule >> 6] |= u64(1) << u64(mule & 63)
    wake(w, keeper)
    w.kept[event, g >> 6] |= u64(1) << u64(g & 63)
    pay(w, receiver, w.rules[0].receive)
    _carry(w, receiver, keeper, event)


@kernel
def give_back(w: World, mule: int) -> int:
    """A mule that has heard nothing for a while gives one event to a community. Returns how many it gave."""
    tick, who = w.clock[CLOCK], w.mule[mule]
    if who.content or tick - who.heard_at < w.rules[0].quiet:
        return 0
    _forget_expired(w, mule, tick)
    blocked = 0
    for k in range(who.touched):
        g = w.touched[mule, k]
        gift = _gift(w, mule, g) if w.group[g + 1].first - w.group[g].first > 1 else -1
        if gift < 0:
            continue
        ready = 0
        while _receiver(w, mule, g, ready, tick) >= 0:
            ready += 1
        place = _keeper(w, g, tick) if ready > 0 else -1
        if place < 0:
            blocked = 1
            continue
        receiver = _receiver(w, mule, g, who.gifts % ready, tick)
        who.gifts += 1
        _give(w, mule, g, gift, receiver, place)
        return 1
    who.content = 1 - blocked
    return 0
