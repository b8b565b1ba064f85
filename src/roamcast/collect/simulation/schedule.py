"""The schedule of a run: everything that does not depend on the protocol, in ticks.

With a finite rate a tick is the time of one transfer, and a transfer needs a tick that lies within the contact.
If transfers take no time, there is a tick for each time at which something happens.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.contacts import Contacts, Entries, cell_entries, find_contacts
from roamcast.collect.simulation.field import FieldWorld
from roamcast.collect.simulation.mobility import Legs

__all__ = ["NEVER", "Occurrence", "Schedule", "TickClock", "legs_from_contacts", "make_clock", "make_schedule"]

Floats = npt.NDArray[np.float64]
Ticks = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

NEVER = 1 << 62
"""A tick that is never reached."""


class Occurrence(IntEnum):
    """Kinds of occurrences, in the order of processing within a tick.

    Contacts begin before others end: a mule that changes from one sensor to another stays in contact.
    """

    NEW_LEG = 0  # a mule starts a leg
    UP = 1  # a contact begins
    DOWN = 2  # a contact ends
    ENTER = 3  # a mule enters a cell


class TickClock(NamedTuple):
    """`rate` ticks per second, or a tick for each of `times` if the rate is infinite. There are `ticks` ticks."""

    rate: float
    times: Floats
    ticks: int

    def first(self, time: Floats) -> Ticks:
        """The first tick that begins at `time` or later."""
        if isfinite(self.rate):
            return np.ceil(time * self.rate).astype(np.int64)
        return np.searchsorted(self.times, time, "left")

    def usable_before(self, time: Floats) -> Ticks:
        """The first tick that is too late for transfers in a contact that ends at `time`."""
        if isfinite(self.rate):
            return np.floor(time * self.rate).astype(np.int64)
        return np.searchsorted(self.times, time, "left")

    def after(self, time: Floats) -> Ticks:
        """The first tick that begins later than `time`."""
        reachable = np.minimum(time, 1e15)
        if isfinite(self.rate):
            return np.floor(reachable * self.rate).astype(np.int64) + 1
        return np.searchsorted(self.times, time, "right")

    def ends(self, tick: Ticks) -> Floats:
        """The end of a tick, when its transfers are complete."""
        return (tick + 1) / self.rate if isfinite(self.rate) else self.times[tick]


class Schedule(NamedTuple):
    """Occurrences in order (`tick`, `kind`, `mule`, `target`), and the contacts during each leg.

    `target` is the sensor of a contact, the leg, or -1. `created` has the tick of each event. The contacts of leg l are
    `leg_contact[leg_first[l]:leg_first[l + 1]]`, rows of `sensor`, `begin` and `until`.
    """

    clock: TickClock
    legs: Legs
    tick: Ticks
    kind: Int32s
    mule: Int32s
    target: Int32s
    created: Ticks
    leg_first: Ticks
    leg_contact: Ticks
    sensor: Int32s
    begin: Ticks
    until: Ticks
    max_reach: int
    """Maximum number of sensors in reach of a mule at the same time."""


def make_schedule(world: FieldWorld, contacts: Contacts | None = None) -> Schedule:
    """Make the schedule from the geometry of the world, or from given contacts.

    With given contacts a mule does not know its path, only the sensors in reach, and all distances to it are taken as
    the width of a cell.
    """
    field, events = world.field, world.events
    if contacts is None:
        entries = cell_entries(field, world.legs)
        contacts, legs = find_contacts(world, entries), world.legs
    else:
        entries = Entries(np.zeros(0, np.int32), np.zeros(0), np.zeros((0, 2), np.int32))
        legs = legs_from_contacts(contacts)
    clock = make_clock(world, contacts, entries, legs)
    begin, end = clock.first(contacts.begin), clock.usable_before(contacts.end)
    usable = begin < end
    mule, sensor, begin, end = contacts.mule[usable], contacts.sensor[usable], begin[usable], end[usable]
    leg_begin, leg_end = clock.first(legs.start), np.maximum(clock.first(legs.end), clock.first(legs.start) + 1)
    leg_first, leg_contact = _contacts_of_legs(legs.mule, leg_begin, leg_end, mule, begin, end)
    parts = (
        (end, Occurrence.DOWN, mule, sensor),
        (leg_begin, Occurrence.NEW_LEG, legs.mule, np.arange(len(legs.mule), dtype=np.int32)),
        (begin, Occurrence.UP, mule, sensor),
        (clock.first(entries.time), Occurrence.ENTER, entries.mule, np.full(len(entries.mule), -1, np.int32)),
    )
    tick = np.concatenate([ticks for ticks, _, _, _ in parts])
    kind = np.concatenate([np.full(len(ticks), occurrence, np.int32) for ticks, occurrence, _, _ in parts])
    occurrence_mule = np.concatenate([mules for _, _, mules, _ in parts])
    target = np.concatenate([targets for _, _, _, targets in parts])
    order = np.lexsort((target, occurrence_mule, kind, tick))
    return Schedule(
        clock=clock,
        legs=legs,
        tick=tick[order],
        kind=kind[order],
        mule=occurrence_mule[order],
        target=target[order],
        created=clock.first(events.time),
        leg_first=leg_first,
        leg_contact=leg_contact,
        sensor=sensor,
        begin=begin,
        until=end,
        max_reach=_max_at_once(mule, begin, end),
    )


def make_clock(world: FieldWorld, contacts: Contacts, entries: Entries, legs: Legs) -> TickClock:
    """Make the clock of a run."""
    field = world.field
    if isfinite(field.rate):
        return TickClock(field.rate, np.zeros(0), int(np.floor(field.duration_s * field.rate)))
    moments = np.concatenate(
        [[0.0], contacts.begin, contacts.end, entries.time, legs.start, legs.end, world.events.time]
    )
    times = np.unique(moments[moments < field.duration_s])
    return TickClock(inf, times, len(times))


def legs_from_contacts(contacts: Contacts) -> Legs:
    """Legs for given contacts: a leg starts whenever a contact of the mule begins or ends; its positions are NaN."""
    mule = np.concatenate([contacts.mule, contacts.mule])
    time = np.concatenate([contacts.begin, contacts.end])
    pairs = np.unique(np.stack([mule.astype(np.float64), time]), axis=1)
    who, start = pairs[0].astype(np.int32), pairs[1]
    follows = np.append(who[1:] == who[:-1], False) if len(who) else np.zeros(0, np.bool_)
    end = np.where(follows, np.append(start[1:], 0.0)[: len(start)], start)
    unknown = np.full(len(who), np.nan)
    return Legs(who, start, end, end, unknown, unknown, unknown, unknown)


def _contacts_of_legs(
    leg_mule: Int32s, leg_begin: Ticks, leg_end: Ticks, mule: Int32s, begin: Ticks, end: Ticks
) -> tuple[Ticks, Ticks]:
    """For each leg, the contacts of its mule that share a tick with it."""
    first, rows = [0], []
    start = np.searchsorted(mule, np.arange(leg_mule.max(initial=-1) + 2))
    for leg, who in enumerate(leg_mule):
        low, high = start[who], start[who + 1]
        # Contacts of a mule are ordered by begin: bisection excludes those after the leg.
        high = low + np.searchsorted(begin[low:high], leg_end[leg], "left")
        during = low + np.flatnonzero(end[low:high] > leg_begin[leg])
        rows.append(during)
        first.append(first[-1] + len(during))
    return np.array(first, np.int64), np.concatenate(rows).astype(np.int64) if rows else np.zeros(0, np.int64)


def _max_at_once(mule: Int32s, begin: Ticks, end: Ticks) -> int:
    change = np.concatenate([np.ones(len(begin), np.int64), -np.ones(len(end), np.int64)])
    order = np.lexsort((-change, np.concatenate([begin, end]), np.concatenate([mule, mule])))
    return int(np.cumsum(change[order]).max(initial=0))
