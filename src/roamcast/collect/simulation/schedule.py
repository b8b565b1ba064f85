"""What happens in a field, on the clock of the simulation.

With a finite rate the clock ticks once for each event that can be transferred, and a transfer takes one tick: it
happens in ticks that lie within a contact altogether. Where transfers take no time, there is a tick for each time at
which something happens.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.contacts import Contacts, Entries, entries_of, meetings
from roamcast.collect.simulation.field import World
from roamcast.collect.simulation.mobility import Legs

__all__ = ["NEVER", "Clock", "Happening", "Schedule", "clock_of", "legs_of", "schedule"]

Floats = npt.NDArray[np.float64]
Ticks = npt.NDArray[np.int64]
Integers = npt.NDArray[np.int32]

NEVER = 1 << 62
"""A tick that never comes."""


class Happening(IntEnum):
    """In the order in which those of one tick are taken: who loses one sensor and meets another stays in contact."""

    LEG = 0  # a mule takes a new path
    UP = 1  # a contact begins
    DOWN = 2  # a contact ends
    ENTER = 3  # a mule enters a cell, and calls


class Clock(NamedTuple):
    """`rate` ticks a second; or, where it is infinite, a tick for each of `times`."""

    rate: float
    times: Floats
    ticks: int
    """How many there are."""

    def first(self, time: Floats) -> Ticks:
        """The first tick that begins at `time` or later."""
        if isfinite(self.rate):
            return np.ceil(time * self.rate).astype(np.int64)
        return np.searchsorted(self.times, time, "left")

    def last(self, time: Floats) -> Ticks:
        """The first tick that is not over at `time`: what ends then can be used before this tick."""
        if isfinite(self.rate):
            return np.floor(time * self.rate).astype(np.int64)
        return np.searchsorted(self.times, time, "left")

    def after(self, time: Floats) -> Ticks:
        """The first tick that begins later than `time`."""
        reachable = np.minimum(time, 1e15)
        if isfinite(self.rate):
            return np.floor(reachable * self.rate).astype(np.int64) + 1
        return np.searchsorted(self.times, time, "right")

    def begins(self, tick: Ticks) -> Floats:
        return tick / self.rate if isfinite(self.rate) else self.times[tick]

    def ends(self, tick: Ticks) -> Floats:
        """When what is sent in a tick has arrived."""
        return (tick + 1) / self.rate if isfinite(self.rate) else self.times[tick]


class Schedule(NamedTuple):
    """Happenings in order; births; and of each leg the contacts that fall into it.

    `what` is the sensor of a contact, the leg, or nothing. The contacts of leg l are
    `leg_contact[leg_first[l]:leg_first[l + 1]]`, rows of `sensor` and `until`.
    """

    clock: Clock
    legs: Legs
    tick: Ticks
    kind: Integers
    mule: Integers
    what: Integers
    born: Ticks
    leg_first: Ticks
    leg_contact: Ticks
    sensor: Integers
    until: Ticks
    reach: int
    """At most so many sensors are in reach of a mule at a time."""


def schedule(world: World, contacts: Contacts | None = None) -> Schedule:
    """From the geometry of the world; or from contacts that are given.

    Then a mule knows no way, but who is in reach; and nobody knows how far away it is: a cell's width is taken.
    """
    field, births = world.field, world.births
    if contacts is None:
        entries = entries_of(field, world.legs)
        contacts, legs = meetings(world, entries), world.legs
    else:
        entries = Entries(np.zeros(0, np.int32), np.zeros(0), np.zeros((0, 2), np.int32))
        legs = legs_of(contacts)
    clock = clock_of(world, contacts, entries, legs)
    begin, end = clock.first(contacts.begin), clock.last(contacts.end)
    usable = begin < end
    mule, sensor, begin, end = contacts.mule[usable], contacts.sensor[usable], begin[usable], end[usable]
    leg_begin, leg_end = clock.first(legs.start), np.maximum(clock.first(legs.end), clock.first(legs.start) + 1)
    leg_first, leg_contact = _within(legs.mule, leg_begin, leg_end, mule, begin, end)
    parts = (
        (end, Happening.DOWN, mule, sensor),
        (leg_begin, Happening.LEG, legs.mule, np.arange(len(legs.mule), dtype=np.int32)),
        (begin, Happening.UP, mule, sensor),
        (clock.first(entries.time), Happening.ENTER, entries.mule, np.full(len(entries.mule), -1, np.int32)),
    )
    tick, who, what = (np.concatenate([part[at] for part in parts]) for at in (0, 2, 3))
    kind = np.concatenate([np.full(len(part[0]), part[1], np.int32) for part in parts])
    order = np.lexsort((what, who, kind, tick))
    return Schedule(
        clock,
        legs,
        tick[order],
        kind[order],
        who[order],
        what[order],
        clock.first(births.time),
        leg_first,
        leg_contact,
        sensor,
        end,
        _most_at_once(mule, begin, end),
    )


def clock_of(world: World, contacts: Contacts, entries: Entries, legs: Legs) -> Clock:
    field = world.field
    if isfinite(field.rate):
        return Clock(field.rate, np.zeros(0), int(np.floor(field.duration_s * field.rate)))
    moments = np.concatenate(
        [[0.0], contacts.begin, contacts.end, entries.time, legs.start, legs.end, world.births.time]
    )
    times = np.unique(moments[moments < field.duration_s])
    return Clock(inf, times, len(times))


def legs_of(contacts: Contacts) -> Legs:
    """Who knows no way ahead sets out anew whenever it meets or loses somebody; it is nowhere in particular."""
    mule = np.concatenate([contacts.mule, contacts.mule])
    time = np.concatenate([contacts.begin, contacts.end])
    pairs = np.unique(np.stack([mule.astype(np.float64), time]), axis=1)
    who, start = pairs[0].astype(np.int32), pairs[1]
    follows = np.append(who[1:] == who[:-1], False) if len(who) else np.zeros(0, np.bool_)
    end = np.where(follows, np.append(start[1:], 0.0)[: len(start)], start)
    nowhere = np.full(len(who), np.nan)
    return Legs(who, start, end, end, nowhere, nowhere, nowhere, nowhere)


def _within(
    leg_mule: Integers, leg_begin: Ticks, leg_end: Ticks, mule: Integers, begin: Ticks, end: Ticks
) -> tuple[Ticks, Ticks]:
    """Of each leg the rows of contacts of its mule that have a tick in common with it."""
    first, rows = [0], []
    start = np.searchsorted(mule, np.arange(leg_mule.max(initial=-1) + 2))
    for leg, who in enumerate(leg_mule):
        low, high = start[who], start[who + 1]
        # Contacts of a mule are in the order of their begin: those after the leg are left out by bisection.
        high = low + np.searchsorted(begin[low:high], leg_end[leg], "left")
        found = low + np.flatnonzero(end[low:high] > leg_begin[leg])
        rows.append(found)
        first.append(first[-1] + len(found))
    return np.array(first, np.int64), np.concatenate(rows).astype(np.int64) if rows else np.zeros(0, np.int64)


def _most_at_once(mule: Integers, begin: Ticks, end: Ticks) -> int:
    change = np.concatenate([np.ones(len(begin), np.int64), -np.ones(len(end), np.int64)])
    order = np.lexsort((-change, np.concatenate([begin, end]), np.concatenate([mule, mule])))
    return int(np.cumsum(change[order]).max(initial=0))
