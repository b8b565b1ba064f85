"""Reference implementation of communities, path sets and head trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from field_reference.geometry import cell_of_point
from roamcast.collect.simulation.field import FieldWorld

__all__ = ["HeadTree", "communities", "layers", "neighbours", "tree_rank"]

Neighbours = Mapping[int, Sequence[int]]


def neighbours(world: FieldWorld) -> dict[int, list[int]]:
    """For each sensor, the sensors in the same or an adjacent cell, ascending."""
    cells = [cell_of_point(world, x, y) for x, y in zip(world.x.tolist(), world.y.tolist(), strict=True)]
    return {
        a: [b for b, (c, r) in enumerate(cells) if b != a and abs(c - column) <= 1 and abs(r - row) <= 1]
        for a, (column, row) in enumerate(cells)
    }


def communities(near: Neighbours) -> list[list[int]]:
    """Connected sensors: ascending lists, ordered by their lowest sensor."""
    groups: list[list[int]] = []
    for sensor in near:
        if not any(sensor in members for members in groups):
            groups.append(sorted(layers(near, [sensor])))
    return groups


def layers(near: Neighbours, roots: Iterable[int]) -> dict[int, int]:
    """The layer of each sensor that can be reached; roots are in layer 1."""
    layer = dict.fromkeys(roots, 1)
    while next_layer := {b for a in layer for b in near[a]} - layer.keys():
        depth = max(layer.values()) + 1
        layer.update((sensor, depth) for sensor in next_layer if any(layer.get(a) == depth - 1 for a in near[sensor]))
    return layer


def tree_rank(seed: int, head: int, sensor: int) -> int:
    """A pseudo-random rank from 0 to 2**64 - 1 that orders neighbours in the tree (splitmix64)."""
    z = (seed + 0x9E3779B97F4A7C15 * (head + 1) + 0xD1342543DE82EF95 * (sensor + 1)) % (1 << 64)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % (1 << 64)
    return z ^ (z >> 31)


class HeadTree:
    """A tree rooted at a head, built outwards, with neighbours in random order."""

    def __init__(self, near: Neighbours, head: int, seed: int) -> None:
        self._children: dict[int, list[int]] = {head: []}
        self._parent = {head: head}
        pending = [head]
        for sensor in pending:
            free = [other for other in near[sensor] if other not in self._parent]
            free.sort(key=lambda other: tree_rank(seed, head, other))
            self._parent.update((child, sensor) for child in free)
            self._children[sensor] = free
            pending += free
        self.order = self._preorder(head)
        """Pre-order: the root, then each child with its subtree."""

    def path(self, a: int, b: int) -> list[int]:
        """The path between two sensors, both ends included."""
        up, down = self._path_to_root(a), self._path_to_root(b)
        meeting = next(sensor for sensor in up if sensor in down)
        return up[: up.index(meeting)] + down[: down.index(meeting) + 1][::-1]

    def _preorder(self, sensor: int) -> list[int]:
        return [sensor] + [below for child in self._children[sensor] for below in self._preorder(child)]

    def _path_to_root(self, sensor: int) -> list[int]:
        path = [sensor]
        while self._parent[path[-1]] != path[-1]:
            path.append(self._parent[path[-1]])
        return path
