"""Communities, path sets and heads' trees, by the letter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from roamcast.collect.simulation.field import World
from roamcast.collect.simulation.reference.geometry import cell_of_point

__all__ = ["Tree", "communities", "layers", "neighbours", "scramble"]

Neighbours = Mapping[int, Sequence[int]]


def neighbours(world: World) -> dict[int, list[int]]:
    """Of each sensor those in the same cell or one that touches it, ascending."""
    cells = [cell_of_point(world, x, y) for x, y in zip(world.x.tolist(), world.y.tolist(), strict=True)]
    return {
        a: [b for b, (c, r) in enumerate(cells) if b != a and abs(c - column) <= 1 and abs(r - row) <= 1]
        for a, (column, row) in enumerate(cells)
    }


def communities(near: Neighbours) -> list[list[int]]:
    """Connected sensors, each list ascending, in the order of their lowest."""
    found: list[list[int]] = []
    for sensor in near:
        if not any(sensor in members for members in found):
            found.append(sorted(layers(near, [sensor])))
    return found


def layers(near: Neighbours, roots: Iterable[int]) -> dict[int, int]:
    """Of each sensor that can be reached its layer; roots are in layer 1."""
    layer = dict.fromkeys(roots, 1)
    while beyond := {b for a in layer for b in near[a]} - layer.keys():
        depth = max(layer.values()) + 1
        layer.update((sensor, depth) for sensor in beyond if any(layer.get(a) == depth - 1 for a in near[sensor]))
    return layer


def scramble(seed: int, head: int, sensor: int) -> int:
    """What the tree leaves to chance: a number from 0 to 2**64 - 1 (splitmix64)."""
    z = (seed + 0x9E3779B97F4A7C15 * (head + 1) + 0xD1342543DE82EF95 * (sensor + 1)) % (1 << 64)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % (1 << 64)
    return z ^ (z >> 31)


class Tree:
    """Rooted at a head, built outwards, neighbours in random order."""

    def __init__(self, near: Neighbours, head: int, seed: int) -> None:
        self._children: dict[int, list[int]] = {head: []}
        self._parent = {head: head}
        waiting = [head]
        for sensor in waiting:
            free = [other for other in near[sensor] if other not in self._parent]
            free.sort(key=lambda other: scramble(seed, head, other))
            self._parent.update((child, sensor) for child in free)
            self._children[sensor] = free
            waiting += free
        self.order = self._from(head)
        """Root, first child and all below it, second child and all below it, and so on."""

    def path(self, a: int, b: int) -> list[int]:
        """Along the tree, both ends included."""
        up, down = self._to_root(a), self._to_root(b)
        meeting = next(sensor for sensor in up if sensor in down)
        return up[: up.index(meeting)] + down[: down.index(meeting) + 1][::-1]

    def _from(self, sensor: int) -> list[int]:
        return [sensor] + [below for child in self._children[sensor] for below in self._from(child)]

    def _to_root(self, sensor: int) -> list[int]:
        way = [sensor]
        while self._parent[way[-1]] != way[-1]:
            way.append(self._parent[way[-1]])
        return way
