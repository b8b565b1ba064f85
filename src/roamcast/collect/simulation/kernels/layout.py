"""Record types of a simulated field, and the arrays that kernels work on. References are row numbers; -1 is none."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BY_OWNER", "COMMUNITY", "COPY", "COUNTS", "CREATED", "DEATH", "DELIVERED", "DOWN", "DUPLICATES", "ELECTIONS",
    "EVENT", "EXPIRED", "FULL", "HOPS", "LEG", "LEG_CONTACT", "LINK", "LOGGED", "MULE", "NEW_LEG", "NEXT_EVENT",
    "NEXT_OCCURRENCE", "OCCURRENCE", "PAIR", "PROGRESS", "PUT_BACK", "RESEND_CELL", "RESEND_MISSING", "RESEND_NEVER",
    "RETRY_TICK", "RULES", "SENSOR", "SPENT", "STORED", "STRANDED", "TICK", "TICK_BEGUN", "TO_MULES", "UP", "Bits",
    "FieldState", "Int32s", "Resend", "Row", "Rows", "Ticks", "i64", "u64",
]  # fmt: skip

Rows: TypeAlias = npt.NDArray[Any]
"""An array of one of the record types below."""
Row: TypeAlias = Any
"""One record of such an array, by reference."""
Ticks: TypeAlias = npt.NDArray[np.int64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Bits: TypeAlias = npt.NDArray[np.uint64]

i64: Final[Any] = np.int64
u64: Final[Any] = np.uint64


class Resend(IntEnum):
    """When an owner may send an event to the same mule again."""

    NEVER = 0
    CONTACT = 1  # in each contact with the community
    MISSING = 2  # likewise, unless the mule has received the event
    CELL = 3  # whenever the mule enters a cell


COUNTS: Final = (
    "created", "full", "expired", "spent", "stranded", "by_owner", "to_mules", "hops", "duplicates", "put_back",
    "elections",
)  # fmt: skip
"""Counters of a run.

`created`: events. `full`, `expired`, `spent`: own or kept copies that found the queue full, became older than beta, or
had more than alpha successes. `stranded`: relayed copies that expired or whose contact ended. `by_owner`, `to_mules`,
`hops`: transfers by the source or keeper, to mules, and all. `duplicates`: events that a mule received again.
`put_back`: events put back. `elections`: heads elected after the first ones."""
CREATED, FULL, EXPIRED, SPENT, STRANDED, BY_OWNER, TO_MULES, HOPS, DUPLICATES, PUT_BACK, ELECTIONS = range(len(COUNTS))

# Plain integers for kernels.
RESEND_NEVER: Final = int(Resend.NEVER)
RESEND_MISSING: Final = int(Resend.MISSING)
RESEND_CELL: Final = int(Resend.CELL)
NEW_LEG, UP, DOWN = range(3)  # see `schedule.Occurrence`; the fourth is a mule that enters a cell

PROGRESS: Final = (
    "tick", "next_occurrence", "next_event", "tick_begun", "delivered", "logged", "death", "retry_tick",
)  # fmt: skip
"""How far a run is.

`tick`: the current tick. `next_occurrence`, `next_event`: the next occurrence, and the next event to create.
`tick_begun`: whether the tick has begun. `delivered`, `logged`: number of rows in `delivered` and in `log`. `death`:
the tick in which the first sensor died, or -1. `retry_tick`: the next tick in which a sensor that waits for room has
to retry."""
TICK, NEXT_OCCURRENCE, NEXT_EVENT, TICK_BEGUN, DELIVERED, LOGGED, DEATH, RETRY_TICK = range(len(PROGRESS))

RULES: Final = np.dtype(
    [
        ("instant", "i8"),  # transfers take no time; `Field.rate` is infinite
        ("one_sent", "i8"),  # a sensor sends at most one event per tick; `rate_per` is node or sender
        ("one_received", "i8"),  # a receiver gets at most one event per tick; `rate_per` is node or receiver
        ("one_hop", "i8"),  # an event moves up one layer per tick; `hand_up` is hop
        ("full_path", "i8"),  # an event moves up to layer 1 in one tick; `hand_up` is way
        ("keep_relayed", "i8"),  # relayed copies stay in the queue when the mule leaves; `left_behind` is waits
        ("stores_all", "i8"),  # a mule may put back also events that it did not want; `stores` is all
        ("keep_copy", "i8"),  # a mule keeps a copy of what it puts back; `gives` is copies
        ("by_successes", "i8"),  # copies with fewer successes are sent first; CET
        ("put_back", "i8"),  # `put_back`
        ("prune", "i8"),  # only the paths to a sensor that loses the mule are removed; `lost_root` is cut
        ("resend", "i8"),  # a `Resend`, from `resend`
        ("room", "i8"),  # of a queue, in copies; `K`
        ("quiet", "i8"),  # ticks; `quiet_s`
        ("gamma", "f8"),  # communities of at most this size are small; `gamma`
        ("alpha", "f8"),  # a copy with more successes is removed; `alpha`
        ("theta", "f8"),  # a head with less energy is replaced; `theta`
        ("send", "f8"),  # joules per event: bits * E_elec
        ("loss", "f8"),  # joules per event and square metre: bits * epsilon_fs
        ("receive", "f8"),  # joules per event
        ("unknown_square", "f8"),  # squared distance to a mule whose position is not known
        ("rate", "f8"),  # ticks per second
        ("seed", "i8"),  # of the world
    ]
)
"""The rules of a run, with the option of the protocol that sets each (see `protocols`)."""

SENSOR: Final = np.dtype(
    [
        ("x", "f8"),
        ("y", "f8"),
        ("energy", "f8"),
        ("next_expiry", "i8"),  # earliest expiry in its queue
        ("sent_at", "i8"),
        ("received_at", "i8"),
        ("retry_at", "i8"),  # while it waits for room in an upper queue: when a copy there expires; else -1
        ("first", "i4"),  # first link; there is one row more than sensors
        ("community", "i4"),
        ("queue_length", "i4"),  # copies in its queue
        ("last_upper", "i4"),  # neighbour that it last relayed to
        ("parent", "i4"),  # in the head's tree, like the next three
        ("depth", "i4"),
        ("child", "i4"),
        ("sibling", "i4"),
    ]
)

LINK: Final = np.dtype([("cost", "f8"), ("used_at", "i8"), ("sensor", "i4"), ("unused", "i4")])
"""A link to a neighbour, in ascending order. `cost` is the energy for sending an event."""

COMMUNITY: Final = np.dtype(
    [
        ("first", "i4"),  # first member; there is one row more than communities
        ("size", "i4"),  # cells
        ("head", "i4"),
        ("next_keeper", "i4"),  # index in `tree_order` of the next keeper
        ("mule_count", "i4"),  # number of mules in contact
        ("head_fixed", "u1"),  # the head is not replaced any more
        ("has_tree", "u1"),
        ("unused", "u2"),
    ]
)
"""A community or an isolated sensor."""

OCCURRENCE: Final = np.dtype([("tick", "i8"), ("kind", "i4"), ("mule", "i4"), ("target", "i4"), ("unused", "i4")])
EVENT: Final = np.dtype(
    [("created", "i8"), ("expiry", "i8"), ("origin", "i4"), ("a1", "i4"), ("a2", "i4"), ("unused", "i4")]
)
LEG_CONTACT: Final = np.dtype([("until", "i8"), ("sensor", "i4"), ("unused", "i4")])
"""A contact during a leg."""

LEG: Final = np.dtype(
    [("start", "f8"), ("arrive", "f8"), ("x0", "f8"), ("y0", "f8"), ("x1", "f8"), ("y1", "f8"), ("first", "i8")]
)
"""A leg and the first of its contacts; there is one row more than legs."""

MULE: Final = np.dtype(
    [
        ("last_received_at", "i8"),
        ("a1", "i4"),  # wants events whose attributes are less than a1 and a2
        ("a2", "i4"),
        ("leg", "i4"),
        ("last_sender", "i4"),
        ("in_reach", "i4"),  # number of sensors in reach
        ("communities", "i4"),  # number of communities in contact
        ("stored", "i4"),  # number of events that it may put back
        ("put_back_count", "i4"),  # number of events put back so far
        ("may_collect", "i4"),  # a sensor in reach may have an event for it
        ("put_back_done", "i4"),  # nothing to put back in the current contacts
    ]
)

PAIR: Final = np.dtype([("layer", "i2"), ("reach", "u1"), ("done", "u1")])
"""State of a mule and a sensor: layer in the path set (0: none); in reach; nothing left to send."""

COPY: Final = np.dtype([("arrived", "i8"), ("event", "i4"), ("for_mule", "i4"), ("successes", "i4"), ("hops", "i4")])
"""A copy in a queue. `for_mule` is the mule that a relayed copy is for, or -1."""

STORED: Final = np.dtype([("event", "i4"), ("hops", "i4")])


class FieldState(NamedTuple):
    """All arrays that kernels read and write."""

    progress: Ticks  # see `PROGRESS`
    counts: Ticks  # see `COUNTS`
    rules: Rows  # one row
    times: npt.NDArray[np.float64]
    occurrence: Rows
    event: Rows
    leg: Rows
    leg_contact: Rows
    sensor: Rows
    link: Rows
    community: Rows
    member: Int32s
    tree_order: Int32s  # members in pre-order of the head's tree
    mule: Rows
    pair: Rows  # by mule and sensor
    in_reach: Int32s  # by mule: sensors in reach, ascending
    communities: Int32s  # by mule: communities in contact, ascending
    reach_by_community: Int32s  # by mule and community: sensors in reach
    mules_in_contact: Int32s  # by community, in order of arrival
    copy: Rows  # by sensor
    sent_to: Bits  # by sensor and queue index: mules that the owner has sent the event to
    stored: Rows  # by mule
    received_by: Bits  # by event: mules that have received it
    put_back_to: Bits  # by event: communities that it was put back to
    relay_pending: Bits  # sensors that may have something to relay
    mule_mask: Bits  # scratch: mules
    tried_mules: Bits  # scratch: mules
    moved_mules: Bits  # scratch: mules
    worklist: Int32s  # scratch: sensors
    delivered: Ticks  # output: tick, mule, event, hops
    log: Ticks  # output: tick, sender, receiver, event
