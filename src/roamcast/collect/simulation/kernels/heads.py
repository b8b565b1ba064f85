"""Heads of communities: energy, election, and the trees along which put-back events are distributed."""

from __future__ import annotations

from roamcast.collect.simulation.kernels.layout import DEATH, ELECTIONS, TICK, FieldState, u64
from roamcast.compiled import inline_kernel, kernel

__all__ = ["build_tree", "pay", "tree_rank"]


@kernel
def tree_rank(seed: int, head: int, sensor: int) -> int:
    """A pseudo-random rank that orders neighbours in the tree (splitmix64)."""
    z = u64(seed) + u64(0x9E3779B97F4A7C15) * u64(head + 1) + u64(0xD1342543DE82EF95) * u64(sensor + 1)
    z = (z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u64(27))) * u64(0x94D049BB133111EB)
    return z ^ (z >> u64(31))  # type: ignore[no-any-return]


@inline_kernel
def pay(s: FieldState, sensor: int, joules: float) -> None:
    """Pay for a transfer. A head whose energy falls below theta is replaced by the member with most energy."""
    sensor_row = s.sensor[sensor]
    sensor_row.energy -= joules
    if sensor_row.energy <= 0 and s.progress[DEATH] < 0:
        s.progress[DEATH] = s.progress[TICK]
    community, theta = s.community[sensor_row.community], s.rules[0].theta
    if community.head != sensor or community.head_fixed or sensor_row.energy >= theta:
        return
    best = s.member[community.first]
    for at in range(community.first, s.community[sensor_row.community + 1].first):
        if s.sensor[s.member[at]].energy > s.sensor[best].energy:
            best = s.member[at]
    community.head = best
    community.head_fixed = 1 if s.sensor[best].energy < theta else 0
    community.has_tree = community.next_keeper = 0
    s.counts[ELECTIONS] += 1


@inline_kernel
def build_tree(s: FieldState, c: int) -> None:
    """Build the tree outwards from the head, neighbours in random order, and its pre-order `tree_order`."""
    head, seed = s.community[c].head, s.rules[0].seed
    for at in range(s.community[c].first, s.community[c + 1].first):
        s.sensor[s.member[at]].parent = -1
    s.sensor[head].parent, s.sensor[head].depth, s.sensor[head].sibling = head, 0, -1
    s.worklist[0] = head
    visited, filled = 0, 1
    while visited < filled:
        sensor = s.worklist[visited]
        visited += 1
        begin = filled
        for at in range(s.sensor[sensor].first, s.sensor[sensor + 1].first):
            other = s.link[at].sensor
            if s.sensor[other].parent < 0:
                s.sensor[other].parent, s.sensor[other].depth = sensor, s.sensor[sensor].depth + 1
                rank = tree_rank(seed, head, other)
                k = filled
                while k > begin and tree_rank(seed, head, s.worklist[k - 1]) > rank:
                    s.worklist[k] = s.worklist[k - 1]
                    k -= 1
                s.worklist[k] = other
                filled += 1
        s.sensor[sensor].child = s.worklist[begin] if filled > begin else -1
        for k in range(begin, filled):
            s.sensor[s.worklist[k]].sibling = s.worklist[k + 1] if k + 1 < filled else -1
    sensor, at = head, s.community[c].first
    while sensor >= 0:
        s.tree_order[at] = sensor
        at += 1
        if s.sensor[sensor].child >= 0:
            sensor = s.sensor[sensor].child
            continue
        while sensor != head and s.sensor[sensor].sibling < 0:
            sensor = s.sensor[sensor].parent
        sensor = s.sensor[sensor].sibling
    s.community[c].has_tree = 1
