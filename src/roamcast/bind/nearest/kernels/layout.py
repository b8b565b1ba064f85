"""Record types of the search arrays. Handles are row numbers; -1 stands for none."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

__all__ = [
    "BOX",
    "CHECKED",
    "ENTITY",
    "FANOUT",
    "FANOUT_BITS",
    "FIRST_BOX",
    "ITEM",
    "MEMBER",
    "SUBSCRIPTION",
    "TREE",
    "UNLIMITED",
    "Floats",
    "Int32s",
    "Int64s",
    "Record",
    "Rows",
    "Rule",
    "SearchArrays",
    "long",
]

Rows: TypeAlias = npt.NDArray[Any]
"""An array of one of the record types below."""
Record: TypeAlias = Any
"""One of its records, by reference."""
Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


long: Final[type[int]] = cast(Any, np.int64)
"""Widens an integer in a kernel: numba compiles a kernel again for each integer width it is called with."""


class Rule(IntEnum):
    """How a subscription chooses among the sources of its group. Ties go to the lower id."""

    NEAREST = 0
    NEAROF = 1  # the nearest source within the radius
    REMOTEOF = 2  # the farthest source within the radius
    ANYOF = 3  # the current source while it is within the radius, else the one with the most bindings


ENTITY: Final = np.dtype(
    [
        ("x", "f8"),
        ("y", "f8"),
        ("budget", "f8"),  # how far it may move before one of its subscriptions must be checked
        ("member", "i4"),  # first of the linked list of its memberships
        ("subscription", "i4"),  # first of the linked list of its subscriptions
    ]
)

UNLIMITED: Final = 1e300
"""A budget that is never used up."""

# An item is a membership (of a source in a group) or a subscription (to a group).
ITEM: Final = np.dtype(
    [
        ("entity", "i4"),
        ("group", "i4"),
        ("entry", "i4"),  # its row among the tree entries; negative if it has none (~row just after it was removed)
        ("next", "i4"),  # next item of the same entity
    ]
)

TREE: Final = np.dtype(
    [
        ("searches", "i8"),  # how often a subscription had to search for its source
        ("start", "i4"),  # of its entries
        ("capacity", "i4"),
        ("used", "i4"),
        ("live", "i4"),
        ("churn", "i4"),  # entries added, removed or moved out of their boxes since the tree was sorted
        ("box", "i4"),  # the first of its boxes
        ("depth", "i4"),  # of the leaves; the root has depth 0
        ("padding", "i4"),
    ]
)

_ENTRY = [("x", "f8"), ("y", "f8"), ("z", "f8"), ("reach", "f8")]

MEMBER: Final = np.dtype([*_ENTRY, ("item", "i4"), ("entity", "i4")])
"""A tree entry of a membership: the chart position of the source. Its reach is 0."""

SUBSCRIPTION: Final = np.dtype(
    [
        *_ENTRY,  # anchor: where the subscriber was when it was last checked; and how near a source must come to matter
        ("safe", "f8"),  # the binding cannot change while the subscriber is nearer than this to the anchor
        ("near", "f8"),  # every other source of the group is at most `near` …
        ("far", "f8"),  # … or at least `far` away from the anchor; negative if the others do not matter
        ("radius", "f8"),
        ("item", "i4"),
        ("entity", "i4"),
        ("bound", "i4"),  # the membership it is bound to
        ("rule", "i2"),
        ("marked", "i2"),  # whether it is marked to be checked
    ]
)
"""A tree entry of a subscription that is not suspended, with its safe region."""

BOX: Final = np.dtype([(side + axis, "f8") for side in ("low_", "high_") for axis in "xyz"])
"""Bounds of the entries below it, each extended by its reach."""

CHECKED: Final = np.dtype(
    [
        ("entry", "i4"),
        ("subscription", "i4"),
        ("entity", "i4"),
        ("old", "i4"),
        ("new", "i4"),
        ("padding", "i4"),
        ("slack", "f8"),
    ]
)
"""A checked subscription: its entry and subscriber, its source before and after, how far the subscriber may move."""

FANOUT_BITS: Final = 3
FANOUT: Final = 1 << FANOUT_BITS
"""Children of a node, and entries of a leaf."""

FIRST_BOX: Final = np.array([((1 << FANOUT_BITS * depth) - 1) // (FANOUT - 1) for depth in range(10)], np.int64)
"""The first box of each depth, relative to the tree's root."""


class SearchArrays(NamedTuple):
    """All arrays that kernels read and write. A group has one tree of members and one of subscriptions."""

    geographic: bool
    entity: Rows
    label: Int64s  # by source: labels are ordered as the ids are
    bindings: Int32s  # by source: the number of subscriptions bound to it
    members: Rows
    member_tree: Rows
    member_entry: Rows
    member_box: Rows
    subscriptions: Rows
    subscription_tree: Rows
    subscription_entry: Rows
    subscription_box: Rows
