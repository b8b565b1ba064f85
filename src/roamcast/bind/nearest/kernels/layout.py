"""The rows of the hot state, and what a kernel is handed. Handles are row numbers; -1 is none."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BOX",
    "ENDLESS",
    "ENTITY",
    "FAN",
    "FIRST",
    "FOUND",
    "ITEM",
    "MEMBER",
    "SHIFT",
    "TREE",
    "WATCHER",
    "Integers",
    "Row",
    "Rows",
    "Rule",
    "World",
]

Rows: TypeAlias = npt.NDArray[Any]
"""An array of one of the record types below."""
Row: TypeAlias = Any
"""One of its records, by reference."""
Integers: TypeAlias = npt.NDArray[np.int32]


class Rule(IntEnum):
    """How a subscription chooses among the qualifying sources of its group; of equals the lower id wins."""

    NEAREST = 0
    NEAROF = 1  # the nearest of those within the radius
    REMOTEOF = 2  # the farthest of those within the radius
    ANYOF = 3  # the bound one while it is within the radius, else the one with most bindings


ENTITY: Final = np.dtype(
    [
        ("x", "f8"),
        ("y", "f8"),
        ("budget", "f8"),  # how far it may still walk before one of its subscriptions must be looked at
        ("member", "i4"),  # its memberships, the first of a chain
        ("watcher", "i4"),  # its subscriptions, the first of a chain
    ]
)

ENDLESS: Final = 1e300
"""A budget that is never used up."""

# An item is a membership (of a source in a group) or a watcher (a subscription, listening to a group).
ITEM: Final = np.dtype(
    [
        ("entity", "i4"),
        ("tree", "i4"),  # the group
        ("place", "i4"),  # its row among the spots; negative when it has none (~row just after it lost it)
        ("next", "i4"),  # of the same entity
    ]
)

TREE: Final = np.dtype(
    [
        ("searched", "i8"),  # how often a watcher had to be evaluated from scratch
        ("start", "i4"),  # of its spots
        ("room", "i4"),
        ("used", "i4"),
        ("live", "i4"),
        ("churn", "i4"),  # what has come, gone or been put elsewhere since it was sorted
        ("box", "i4"),  # the first of its boxes
        ("depth", "i4"),  # of the leaves; the root has 0
        ("unused", "i4"),
    ]
)

_SPOT = [("x", "f8"), ("y", "f8"), ("z", "f8"), ("reach", "f8")]

MEMBER: Final = np.dtype([*_SPOT, ("item", "i4"), ("entity", "i4")])
"""Where a source of the group is, in the chart. Its reach is 0."""

WATCHER: Final = np.dtype(
    [
        *_SPOT,  # its anchor: where it was evaluated; and how near a source must come to matter
        ("safe", "f8"),  # the binding stands while the subscriber is nearer than this to the anchor
        ("near", "f8"),  # every other source of the group is at most `near` …
        ("far", "f8"),  # … or at least `far` away from the anchor; negative: the others do not matter
        ("radius", "f8"),
        ("item", "i4"),
        ("entity", "i4"),
        ("bound", "i4"),  # a membership
        ("rule", "i2"),
        ("marked", "i2"),  # whether it is on a list of those to look at
    ]
)

BOX: Final = np.dtype([(side + axis, "f8") for side in ("low_", "high_") for axis in "xyz"])
"""Holds the spots below it, each as far as it reaches."""

FOUND: Final = np.dtype([("watcher", "i4"), ("entity", "i4"), ("old", "i4"), ("new", "i4"), ("slack", "f8")])
"""A watcher that was looked at, its sources before and after as entities, and how far it may go now."""

SHIFT: Final = 3
FAN: Final = 1 << SHIFT
"""Children of a node, and spots of a leaf."""

FIRST: Final = np.array([((1 << SHIFT * depth) - 1) // (FAN - 1) for depth in range(10)], np.int64)
"""Where a tree's boxes of a depth begin."""


class World(NamedTuple):
    """All that kernels read and write. Memberships and watchers of a group are trees of the same number."""

    geographic: bool
    entity: Rows
    label: npt.NDArray[np.int64]  # by source: in the order of their ids
    bindings: npt.NDArray[np.int32]  # by source: subscriptions bound to it
    members: Rows
    member_tree: Rows
    member_spot: Rows
    member_box: Rows
    watchers: Rows
    watcher_tree: Rows
    watcher_spot: Rows
    watcher_box: Rows
