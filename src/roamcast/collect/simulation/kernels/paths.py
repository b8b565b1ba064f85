"""Contacts of mules with sensors and communities, and the path sets that they bring about."""

from __future__ import annotations

from roamcast.collect.simulation.kernels.layout import AT_CELL, NEVER_AGAIN, Integers, World, u64
from roamcast.collect.simulation.kernels.queueing import forget_mule, strand
from roamcast.compiled import kernel

__all__ = ["change_leg", "insert", "lose", "meet_sensor", "remove", "wake"]


@kernel
def wake(w: World, sensor: int) -> None:
    """It has something new, or a new way: whoever is in contact is served again."""
    g = w.sensor[sensor].group
    for at in range(w.group[g].contacts):
        mule = w.contact[g, at]
        w.pair[mule, sensor].done = 0
        if w.pair[mule, sensor].reach:
            w.mule[mule].thirsty = 1
    if w.group[g].contacts > 0:
        w.restless[sensor >> 6] |= u64(1) << u64(sensor & 63)


@kernel
def _wake_for(w: World, mule: int, g: int) -> None:
    """The ways to this mule are others now."""
    for at in range(w.group[g].first, w.group[g + 1].first):
        sensor = w.member[at]
        w.pair[mule, sensor].done = 0
        w.restless[sensor >> 6] |= u64(1) << u64(sensor & 63)
    w.mule[mule].thirsty = 1


@kernel
def _lay_paths(w: World, mule: int, g: int, tick: int) -> None:
    """Layer 1: members that this leg has or will have in reach; then breadth first."""
    for at in range(w.group[g].first, w.group[g + 1].first):
        w.pair[mule, w.member[at]].layer = 0
    filled = 0
    leg = w.mule[mule].leg
    for at in range(w.path[leg].first, w.path[leg + 1].first):
        sensor = w.visit[at].sensor
        if w.visit[at].until > tick and w.sensor[sensor].group == g and w.pair[mule, sensor].layer == 0:
            w.pair[mule, sensor].layer = 1
            w.line[filled] = sensor
            filled += 1
    done = 0
    while done < filled:
        sensor = w.line[done]
        done += 1
        for at in range(w.sensor[sensor].first, w.sensor[sensor + 1].first):
            other = w.link[at].sensor
            if w.pair[mule, other].layer == 0:
                w.pair[mule, other].layer = w.pair[mule, sensor].layer + 1
                w.line[filled] = other
                filled += 1
    _wake_for(w, mule, g)


@kernel
def _cut_paths(w: World, mule: int, g: int, sensor: int) -> None:
    """What led to this root alone falls away. A path laid anew in this tick has no such root."""
    if w.pair[mule, sensor].layer != 1:
        return
    w.pair[mule, sensor].layer = 0
    depth, deeper = 2, 1
    while deeper > 0:
        deeper = 0
        for at in range(w.group[g].first, w.group[g + 1].first):
            member = w.member[at]
            layer = w.pair[mule, member].layer
            deeper += layer > depth
            if layer == depth:
                held = 0
                for k in range(w.sensor[member].first, w.sensor[member + 1].first):
                    held += w.pair[mule, w.link[k].sensor].layer == depth - 1
                if held == 0:
                    w.pair[mule, member].layer = 0
        depth += 1
    _wake_for(w, mule, g)


@kernel
def change_leg(w: World, mule: int, leg: int, tick: int) -> None:
    """The path is announced anew to every community in contact."""
    w.mule[mule].leg = leg
    for at in range(w.mule[mule].touched):
        _lay_paths(w, mule, w.touched[mule, at], tick)


@kernel
def meet_sensor(w: World, mule: int, sensor: int, tick: int) -> None:
    """A contact with a sensor begins, and maybe one with its community."""
    g, who, resend = w.sensor[sensor].group, w.mule[mule], w.rules[0].resend
    w.pair[mule, sensor].reach = 1
    insert(w.near, mule, who.near, sensor)
    who.near += 1
    who.thirsty, who.content = 1, 0
    if resend == AT_CELL:
        forget_mule(w, sensor, mule)
    w.touching[mule, g] += 1
    if w.touching[mule, g] > 1:
        wake(w, sensor)
        return
    w.contact[g, w.group[g].contacts] = mule
    w.group[g].contacts += 1
    insert(w.touched, mule, who.touched, g)
    who.touched += 1
    if resend != NEVER_AGAIN and resend != AT_CELL:
        for at in range(w.group[g].first, w.group[g + 1].first):
            forget_mule(w, w.member[at], mule)
    _lay_paths(w, mule, g, tick)


@kernel
def lose(w: World, mule: int, sensor: int, tick: int) -> None:
    """A contact with a sensor ends, and maybe the last one with its community."""
    g, who = w.sensor[sensor].group, w.mule[mule]
    w.pair[mule, sensor].reach = 0
    remove(w.near, mule, who.near, sensor)
    who.near -= 1
    w.touching[mule, g] -= 1
    if w.touching[mule, g] > 0:
        if w.rules[0].cut:
            _cut_paths(w, mule, g, sensor)
        else:
            _lay_paths(w, mule, g, tick)
        return
    remove(w.contact, g, w.group[g].contacts, mule)
    w.group[g].contacts -= 1
    remove(w.touched, mule, who.touched, g)
    who.touched -= 1
    for at in range(w.group[g].first, w.group[g + 1].first):
        member = w.member[at]
        w.pair[mule, member].layer = 0
        if not w.rules[0].waits:
            strand(w, member, mule)
        if w.group[g].contacts == 0:
            w.sensor[member].alarm = -1
            w.restless[member >> 6] &= ~(u64(1) << u64(member & 63))


@kernel
def insert(lists: Integers, row: int, count: int, value: int) -> None:
    """Into an ascending list."""
    at = count
    while at > 0 and lists[row, at - 1] > value:
        lists[row, at] = lists[row, at - 1]
        at -= 1
    lists[row, at] = value


@kernel
def remove(lists: Integers, row: int, count: int, value: int) -> None:
    """Out of a list, which keeps its order."""
    at = 0
    while lists[row, at] != value:
        at += 1
    for k in range(at, count - 1):
        lists[row, k] = lists[row, k + 1]
