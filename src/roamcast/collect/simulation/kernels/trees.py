"""Heads, and the trees rooted at them along which put-back events are kept."""

from __future__ import annotations

from roamcast.collect.simulation.kernels.layout import CLOCK, DEATH, ELECTIONS, World, u64
from roamcast.compiled import kernel

__all__ = ["grow_tree", "pay", "scramble"]


@kernel
def scramble(seed: int, head: int, sensor: int) -> int:
    """What the tree leaves to chance (splitmix64)."""
    z = u64(seed) + u64(0x9E3779B97F4A7C15) * u64(head + 1) + u64(0xD1342543DE82EF95) * u64(sensor + 1)
    z = (z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u64(27))) * u64(0x94D049BB133111EB)
    return z ^ (z >> u64(31))  # type: ignore[no-any-return]


@kernel
def pay(w: World, sensor: int, joules: float) -> None:
    """A head that falls below theta makes way for the member with most energy."""
    who = w.sensor[sensor]
    who.energy -= joules
    if who.energy <= 0 and w.clock[DEATH] < 0:
        w.clock[DEATH] = w.clock[CLOCK]
    group, theta = w.group[who.group], w.rules[0].theta
    if group.head != sensor or group.for_good or who.energy >= theta:
        return
    best = w.member[group.first]
    for at in range(group.first, w.group[who.group + 1].first):
        if w.sensor[w.member[at]].energy > w.sensor[best].energy:
            best = w.member[at]
    group.head = best
    group.for_good = 1 if w.sensor[best].energy < theta else 0
    group.has_tree = group.turn = 0
    w.counts[ELECTIONS] += 1


@kernel
def grow_tree(w: World, g: int) -> None:
    """Outwards from the head, neighbours in random order; and its pre-order, along the members of the group."""
    head, seed = w.group[g].head, w.rules[0].seed
    for at in range(w.group[g].first, w.group[g + 1].first):
        w.sensor[w.member[at]].parent = -1
    w.sensor[head].parent, w.sensor[head].depth, w.sensor[head].sibling = head, 0, -1
    w.line[0] = head
    done, filled = 0, 1
    while done < filled:
        sensor = w.line[done]
        done += 1
        begin = filled
        for at in range(w.sensor[sensor].first, w.sensor[sensor + 1].first):
            other = w.link[at].sensor
            if w.sensor[other].parent < 0:
                w.sensor[other].parent, w.sensor[other].depth = sensor, w.sensor[sensor].depth + 1
                rank = scramble(seed, head, other)
                k = filled
                while k > begin and scramble(seed, head, w.line[k - 1]) > rank:
                    w.line[k] = w.line[k - 1]
                    k -= 1
                w.line[k] = other
                filled += 1
        w.sensor[sensor].child = w.line[begin] if filled > begin else -1
        for k in range(begin, filled):
            w.sensor[w.line[k]].sibling = w.line[k + 1] if k + 1 < filled else -1
    sensor, at = head, w.group[g].first
    while sensor >= 0:
        w.order[at] = sensor
        at += 1
        if w.sensor[sensor].child >= 0:
            sensor = w.sensor[sensor].child
            continue
        while sensor != head and w.sensor[sensor].sibling < 0:
            sensor = w.sensor[sensor].parent
        sensor = w.sensor[sensor].sibling
    w.group[g].has_tree = 1
