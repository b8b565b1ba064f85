"""What every member of a community knows of it: members and cells, layers of path sets, and the trees of heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from roamcast.collect.protocol.events import NodeId

__all__ = [
    "Cell", "Community", "HeadTree", "Neighbours", "find_communities", "find_layers", "neighbours_of", "tree_rank",
]  # fmt: skip

Cell: TypeAlias = tuple[int, int]
"""Column and row."""
Neighbours: TypeAlias = Mapping[NodeId, Sequence[NodeId]]

_MOST_LAYERS = 4096


def neighbours_of(cells: Mapping[NodeId, Cell]) -> dict[NodeId, list[NodeId]]:
    """For each node, the nodes in the same or an adjacent cell, ascending. Cells that share a corner are adjacent."""
    return {
        a: sorted(b for b, (c, r) in cells.items() if b != a and abs(c - column) <= 1 and abs(r - row) <= 1)
        for a, (column, row) in cells.items()
    }


def find_layers(near: Neighbours, roots: Iterable[NodeId]) -> dict[NodeId, int]:
    """The layer of each node that can be reached from the roots, which are layer 1: breadth first."""
    layer = dict.fromkeys(roots, 1)
    pending = list(layer)
    for node in pending:
        for other in near[node]:
            if other not in layer:
                layer[other] = layer[node] + 1
                pending.append(other)
    return layer


def find_communities(cells: Mapping[NodeId, Cell]) -> list[Community]:
    """The communities of nodes at these cells, ordered by their lowest member."""
    near = neighbours_of(cells)
    communities: list[Community] = []
    placed: set[NodeId] = set()
    for node in sorted(cells):
        if node not in placed:
            members = sorted(find_layers(near, [node]))
            placed.update(members)
            communities.append(Community({member: cells[member] for member in members}))
    return communities


@dataclass(frozen=True)
class Community:
    """Connected nodes and their cells. Each member knows all of it."""

    cells: Mapping[NodeId, Cell]

    @cached_property
    def id(self) -> NodeId:
        """The lowest member."""
        return min(self.cells)

    @cached_property
    def members(self) -> tuple[NodeId, ...]:
        return tuple(sorted(self.cells))

    @cached_property
    def size(self) -> int:
        """The number of cells with members."""
        return len(set(self.cells.values()))

    @cached_property
    def neighbours(self) -> dict[NodeId, list[NodeId]]:
        return neighbours_of(self.cells)

    @property
    def is_isolated(self) -> bool:
        return len(self.cells) == 1

    def layers(self, roots: frozenset[NodeId]) -> Mapping[NodeId, int]:
        """The path set with these roots (section 3.2.1)."""
        layers = self._layers.get(roots)
        if layers is None:
            if len(self._layers) >= _MOST_LAYERS:
                self._layers.clear()
            layers = self._layers[roots] = find_layers(self.neighbours, roots)
        return layers

    @cached_property
    def _layers(self) -> dict[frozenset[NodeId], Mapping[NodeId, int]]:
        return {}


def tree_rank(seed: int, head: NodeId, node: NodeId) -> int:
    """A pseudo-random rank from 0 to 2**64 - 1 that orders neighbours in the tree (splitmix64)."""
    z = (seed + 0x9E3779B97F4A7C15 * (head + 1) + 0xD1342543DE82EF95 * (node + 1)) % (1 << 64)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % (1 << 64)
    return z ^ (z >> 31)


class HeadTree:
    """A tree rooted at a head, built outwards, with neighbours in random order (section 3.2.2)."""

    def __init__(self, near: Neighbours, head: NodeId, seed: int) -> None:
        self._children: dict[NodeId, list[NodeId]] = {}
        self._parent = {head: head}
        pending = [head]
        for node in pending:
            free = [other for other in near[node] if other not in self._parent]
            free.sort(key=lambda other: tree_rank(seed, head, other))
            self._parent.update((child, node) for child in free)
            self._children[node] = free
            pending += free
        self.order = self._preorder(head)
        """Pre-order: the root, then each child with its subtree."""

    def path(self, a: NodeId, b: NodeId) -> list[NodeId]:
        """The path between two nodes, both ends included."""
        up, down = self._path_to_root(a), self._path_to_root(b)
        meeting = next(node for node in up if node in down)
        return up[: up.index(meeting)] + down[: down.index(meeting) + 1][::-1]

    def _preorder(self, head: NodeId) -> list[NodeId]:
        order, pending = [], [head]
        while pending:
            node = pending.pop()
            order.append(node)
            pending += reversed(self._children[node])
        return order

    def _path_to_root(self, node: NodeId) -> list[NodeId]:
        path = [node]
        while self._parent[path[-1]] != path[-1]:
            path.append(self._parent[path[-1]])
        return path
