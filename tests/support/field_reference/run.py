"""State of a reference run that all protocols share: clock, contacts, energy, counts and the log of transfers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Final, NamedTuple, Protocol

from roamcast.collect.simulation.contacts import Contacts
from roamcast.collect.simulation.field import FieldWorld, Radio
from roamcast.collect.simulation.protocols import RatePer
from roamcast.collect.simulation.schedule import TickClock

__all__ = ["FieldDelivery", "ReferenceProtocol", "ReferenceRun", "TickContact", "Transfer", "run_reference"]


class Transfer(NamedTuple):
    """A transfer of an event in a tick. Mules are numbered after the sensors."""

    tick: int
    sender: int
    receiver: int
    event: int


class FieldDelivery(NamedTuple):
    """The first receipt of an event by a mule that wants it."""

    tick: int
    mule: int
    event: int
    hops: int


@dataclass(frozen=True)
class TickContact:
    """A contact from tick `begin` up to, not including, tick `end`."""

    mule: int
    sensor: int
    begin: int
    end: int


class ReferenceProtocol(Protocol):
    """The rules of a protocol."""

    def begin_tick(self) -> None:
        """Process contacts that begin or end, and paths that change."""

    def create(self, event: int) -> None:
        """An event is created at its sensor."""

    def step(self) -> bool:
        """Transfer what can be transferred now. Returns whether anything was."""


class ReferenceRun:
    """The state and the results of a run."""

    def __init__(self, world: FieldWorld, clock: TickClock, contacts: Contacts, radio: Radio) -> None:
        self.world, self.clock, self.radio = world, clock, radio
        self.now = 0
        self.energy = [radio.initial_j] * world.field.sensors
        self.counts: Counter[str] = Counter()
        self.transfers: list[Transfer] = []
        self.deliveries: list[FieldDelivery] = []
        self.known: set[tuple[int, int]] = set()
        """(mule, event): what mules have received."""
        self.first_death: int | None = None
        ticks = zip(clock.first(contacts.begin).tolist(), clock.usable_before(contacts.end).tolist(), strict=True)
        pairs = zip(contacts.mule.tolist(), contacts.sensor.tolist(), strict=True)
        tick_contacts = (TickContact(*pair, *tick) for pair, tick in zip(pairs, ticks, strict=True))
        self.contacts: Final = [contact for contact in tick_contacts if contact.begin < contact.end]
        legs = world.legs
        begins, ends = clock.first(legs.start).tolist(), clock.first(legs.end).tolist()
        spans = [(begin, max(end, begin + 1)) for begin, end in zip(begins, ends, strict=True)]
        self._legs = [
            [(leg, *spans[leg]) for leg in range(len(spans)) if legs.mule[leg] == m] for m in range(world.field.mules)
        ]
        self.expiry: list[int] = []

    @property
    def is_instant(self) -> bool:
        """Whether transfers take no time."""
        return not isfinite(self.clock.rate)

    def sends_one(self, rate_per: RatePer) -> bool:
        """Whether a sensor can send at most one event per tick."""
        return rate_per in ("node", "sender") and not self.is_instant

    def takes_one(self, rate_per: RatePer) -> bool:
        """Whether a receiver can get at most one event per tick."""
        return rate_per in ("node", "receiver") and not self.is_instant

    def in_reach(self, mule: int) -> list[int]:
        """Sensors in reach of a mule, ascending."""
        return sorted(v.sensor for v in self.contacts if v.mule == mule and v.begin <= self.now < v.end)

    def leg(self, mule: int) -> tuple[int, int, int]:
        """The current leg of a mule: number (-1 before the first), first tick and end."""
        begun: list[tuple[int, int, int]] = [(-1, 0, 0), *(leg for leg in self._legs[mule] if leg[1] <= self.now)]
        return begun[-1]

    def ahead(self, mule: int) -> set[int]:
        """Sensors in reach of the mule now or later on this leg: Z in the paper, for all communities."""
        _, begin, end = self.leg(mule)
        mine = (v for v in self.contacts if v.mule == mule and v.begin < end and v.end > begin)
        return {contact.sensor for contact in mine if contact.end > self.now}

    def wants(self, mule: int, event: int) -> bool:
        events, want = self.world.events, self.world.want
        return bool(events.a1[event] < want[mule, 0] and events.a2[event] < want[mule, 1])

    def is_expired(self, event: int) -> bool:
        return self.now >= self.expiry[event]

    def between(self, a: int, b: int) -> float:
        """The squared distance between two sensors."""
        x, y = self.world.x, self.world.y
        return _square(x[a] - x[b], y[a] - y[b])

    def to_mule(self, sensor: int, mule: int) -> float:
        """The squared distance between a sensor and a mule at the beginning of this tick."""
        legs, leg, field = self.world.legs, self.leg(mule)[0], self.world.field
        if isnan(legs.x0[leg]):
            return float((field.side / field.cells) ** 2)
        time = self.now / self.clock.rate if isfinite(self.clock.rate) else float(self.clock.times[self.now])
        took = legs.arrive[leg] - legs.start[leg]
        part = min(max((time - legs.start[leg]) / took, 0.0), 1.0) if took > 0 else 1.0
        x = legs.x0[leg] + part * (legs.x1[leg] - legs.x0[leg])
        y = legs.y0[leg] + part * (legs.y1[leg] - legs.y0[leg])
        return _square(x - self.world.x[sensor], y - self.world.y[sensor])

    def pay(self, sensor: int, joules: float) -> None:
        self.energy[sensor] -= joules
        if self.energy[sensor] <= 0 and self.first_death is None:
            self.first_death = self.now

    def log(self, sender: int, receiver: int, event: int) -> None:
        self.transfers.append(Transfer(self.now, sender, receiver, event))
        self.counts["hops"] += 1

    def name(self, mule: int) -> int:
        """The number of a mule in the log."""
        return self.world.field.sensors + mule

    def give_to_mule(self, sensor: int, mule: int, event: int, hops: int) -> bool:
        """A sensor sends an event to a mule. Returns whether the mule wants it and receives it for the first time."""
        bits = self.world.field.event_bits
        self.log(sensor, self.name(mule), event)
        self.pay(sensor, self.radio.send(bits, self.to_mule(sensor, mule)))
        self.counts["to_mules"] += 1
        return self.receive(mule, event, hops)

    def receive(self, mule: int, event: int, hops: int) -> bool:
        if (mule, event) in self.known:
            self.counts["duplicates"] += 1
            return False
        self.known.add((mule, event))
        if not self.wants(mule, event):
            return False
        self.deliveries.append(FieldDelivery(self.now, mule, event, hops))
        return True


def _square(dx: float, dy: float) -> float:
    """The squared length, with products: `** 2` of a single float is not always the nearest float to the square."""
    return float(dx * dx + dy * dy)


def run_reference(run: ReferenceRun, protocol: ReferenceProtocol, *, until_death: bool = False) -> None:
    """Run tick by tick to the end, or to the first death of a sensor."""
    created = run.clock.first(run.world.events.time).tolist()
    for tick in range(run.clock.ticks):
        run.now = tick
        protocol.begin_tick()
        for event, when in enumerate(created):
            if when == tick:
                run.counts["created"] += 1
                protocol.create(event)
        while protocol.step() and run.is_instant:
            pass
        if until_death and run.first_death is not None:
            return
