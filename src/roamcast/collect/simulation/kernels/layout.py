"""The rows of a simulated field, and what a kernel is handed. Handles are row numbers; -1 is none."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "ALARM", "AT_CELL", "BIRTH", "BORN", "BY_OWNER", "CLOCK", "COPY", "DEATH", "DELIVERED", "DOWN", "DUPLICATES",
    "ELECTIONS", "EVENT", "EXPIRED", "FULL", "GROUP", "HAPPENING", "HOPS", "LEG", "LINK", "LOGGED", "MISSING", "MULE",
    "NEVER_AGAIN", "NEXT", "PAIR", "PATH", "PUT_BACK", "ROUNDS", "RULES", "SENSOR", "SPENT", "STORED", "STRANDED",
    "TO_MULES", "UP", "VISIT", "Bits", "Count", "Integers", "Resend", "Row", "Rows", "Ticks", "World", "i64", "u64",
]  # fmt: skip

Rows: TypeAlias = npt.NDArray[Any]
"""An array of one of the record types below."""
Row: TypeAlias = Any
"""One of its records, by reference."""
Ticks: TypeAlias = npt.NDArray[np.int64]
Integers: TypeAlias = npt.NDArray[np.int32]
Bits: TypeAlias = npt.NDArray[np.uint64]

i64: Final[Any] = np.int64
u64: Final[Any] = np.uint64


class Resend(IntEnum):
    """When an owner forgets that it has sent an event to a mule."""

    NEVER = 0
    CONTACT = 1  # when a contact with the community begins
    MISSING = 2  # then too, but the mule is asked whether it has got it
    CELL = 3  # whenever the mule enters a cell


class Count(IntEnum):
    """What is counted; see `roamcast.collect.simulation.outcome`."""

    born = 0
    full = 1
    expired = 2
    spent = 3
    stranded = 4
    by_owner = 5
    to_mules = 6
    hops = 7
    duplicates = 8
    put_back = 9
    elections = 10


# Kernels take plain numbers.
NEVER_AGAIN: Final = int(Resend.NEVER)
MISSING: Final = int(Resend.MISSING)
AT_CELL: Final = int(Resend.CELL)
BORN, FULL, EXPIRED, SPENT, STRANDED, BY_OWNER, TO_MULES, HOPS, DUPLICATES, PUT_BACK, ELECTIONS = map(int, Count)
LEG, UP, DOWN = range(3)  # see `schedule.Happening`; the fourth is a mule that enters a cell
CLOCK, NEXT, BIRTH, ROUNDS, DELIVERED, LOGGED, DEATH, ALARM = range(8)
"""Places in `clock`: the tick; the next happening; the next birth; whether the tick has begun; rows handed out so far;
the tick in which the first sensor died; the next one in which a sensor that waits for room must look again."""

RULES: Final = np.dtype(
    [
        ("instant", "i8"),  # transfers take no time
        ("one_sent", "i8"),  # a sensor sends one event in a tick
        ("one_got", "i8"),  # whoever receives gets one event in a tick
        ("one_hop", "i8"),  # events climb one layer in a tick
        ("way", "i8"),  # they climb to layer 1
        ("waits", "i8"),  # what is on its way up stays when the mule goes
        ("stores_all", "i8"),
        ("copies", "i8"),  # a mule keeps what it puts back
        ("by_successes", "i8"),
        ("put_back", "i8"),
        ("cut", "i8"),
        ("resend", "i8"),
        ("room", "i8"),  # K
        ("quiet", "i8"),  # ticks
        ("gamma", "f8"),
        ("alpha", "f8"),
        ("theta", "f8"),
        ("send", "f8"),  # joules for an event: bits * E_elec
        ("loss", "f8"),  # joules for an event and square metre: bits * epsilon_fs
        ("receive", "f8"),
        ("unknown", "f8"),  # the square of a distance to a mule that is nowhere in particular
        ("rate", "f8"),
        ("seed", "i8"),
    ]
)

SENSOR: Final = np.dtype(
    [
        ("x", "f8"),
        ("y", "f8"),
        ("energy", "f8"),
        ("next_expiry", "i8"),  # of what is in its queue
        ("sent_at", "i8"),
        ("got_at", "i8"),
        ("alarm", "i8"),  # while it waits for room above: when something there expires; else -1
        ("first", "i4"),  # of its links; there is a row more than sensors
        ("group", "i4"),
        ("used", "i4"),  # places of its queue
        ("upper", "i4"),  # whom it handed up to last
        ("parent", "i4"),  # in the tree of its group's head, as the next three
        ("depth", "i4"),
        ("child", "i4"),
        ("sibling", "i4"),
    ]
)

LINK: Final = np.dtype([("cost", "f8"), ("used_at", "i8"), ("sensor", "i4"), ("unused", "i4")])
"""To a neighbour; ascending. The cost is that of sending an event."""

# A group is a community or a loner.
GROUP: Final = np.dtype(
    [
        ("first", "i4"),  # of its members; there is a row more than groups
        ("size", "i4"),  # cells
        ("head", "i4"),
        ("turn", "i4"),  # who keeps next, in the order of the tree
        ("contacts", "i4"),  # mules in contact
        ("for_good", "u1"),  # the head stays, come what may
        ("has_tree", "u1"),
        ("unused", "u2"),
    ]
)

HAPPENING: Final = np.dtype([("tick", "i8"), ("kind", "i4"), ("mule", "i4"), ("what", "i4"), ("unused", "i4")])
EVENT: Final = np.dtype(
    [("born", "i8"), ("expiry", "i8"), ("origin", "i4"), ("a1", "i4"), ("a2", "i4"), ("unused", "i4")]
)
VISIT: Final = np.dtype([("until", "i8"), ("sensor", "i4"), ("unused", "i4")])
"""A contact that falls into a leg."""

PATH: Final = np.dtype(
    [("start", "f8"), ("arrive", "f8"), ("x0", "f8"), ("y0", "f8"), ("x1", "f8"), ("y1", "f8"), ("first", "i8")]
)
"""A leg, and the first of its visits; there is a row more than legs."""

MULE: Final = np.dtype(
    [
        ("heard_at", "i8"),
        ("a1", "i4"),  # it wants events with less than these
        ("a2", "i4"),
        ("leg", "i4"),
        ("last_sender", "i4"),
        ("near", "i4"),  # sensors in reach
        ("touched", "i4"),  # groups in contact
        ("stored", "i4"),  # events that it may put back
        ("gifts", "i4"),  # that it has put back
        ("thirsty", "i4"),  # may have something to collect
        ("content", "i4"),  # has nothing to put back here
    ]
)

PAIR: Final = np.dtype([("layer", "i2"), ("reach", "u1"), ("done", "u1")])
"""Of a mule and a sensor: its layer in the path set, 0 for none; in reach; nothing left to send."""

COPY: Final = np.dtype([("arrived", "i8"), ("event", "i4"), ("tag", "i4"), ("successes", "i4"), ("hops", "i4")])
"""A place of a queue. The tag is the mule that a relayed copy is for."""

STORED: Final = np.dtype([("event", "i4"), ("hops", "i4")])


class World(NamedTuple):
    """All that kernels read and write."""

    clock: Ticks
    counts: Ticks
    rules: Rows  # one
    times: npt.NDArray[np.float64]
    happening: Rows
    event: Rows
    path: Rows
    visit: Rows
    sensor: Rows
    link: Rows
    group: Rows
    member: Integers
    order: Integers  # members in the order of the tree
    mule: Rows
    pair: Rows  # by mule and sensor
    near: Integers  # by mule: sensors in reach, ascending
    touched: Integers  # by mule: groups in contact, ascending
    touching: Integers  # by mule and group: sensors in reach
    contact: Integers  # by group: mules in contact, in the order in which they came
    copy: Rows  # by sensor
    sent: Bits  # by sensor, place: mules that the owner has sent it to
    stored: Rows  # by mule
    known: Bits  # by event: mules that have it
    kept: Bits  # by event: groups that it was put back to
    restless: Bits  # sensors that may have something to relay
    mask: Bits  # scratch: mules
    tried: Bits  # scratch: mules
    moved: Bits  # scratch: mules
    line: Integers  # scratch: sensors
    delivered: Ticks  # handed out: tick, mule, event, hops
    log: Ticks  # handed out: tick, sender, receiver, event
