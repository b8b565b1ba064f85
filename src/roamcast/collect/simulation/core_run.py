"""What the runs of all cores share: the world in ticks, the log of transfers, deaths, and the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import isfinite, isnan
from typing import Final, Protocol

import numpy as np

from roamcast.collect.protocol.communities import Cell
from roamcast.collect.protocol.energy import EnergyAccount, Radio
from roamcast.collect.protocol.events import CopyQueue, EventId, FieldEvent
from roamcast.collect.simulation.field import FieldWorld, cells_of
from roamcast.collect.simulation.kernels.layout import COUNTS
from roamcast.collect.simulation.kernels.run import SENDER_STEP
from roamcast.collect.simulation.results import SimulationResult, count_wanted_pairs
from roamcast.collect.simulation.schedule import Occurrence, Schedule

__all__ = ["CoreRun", "Cores"]


class Cores(Protocol):
    """The cores of a protocol, and an ideal link between them."""

    def advance(self) -> None:
        """A tick begins."""

    def occur(self, kind: Occurrence, mule: int, target: int) -> None:
        """A leg, a contact or a cell begins, or a contact ends."""

    def create(self, sensor: int, event: FieldEvent) -> None:
        """A sensor creates an event."""

    def step(self) -> bool:
        """Transfer what can be transferred now. Returns whether anything was."""

    @property
    def queues(self) -> Iterable[CopyQueue]:
        """The queues of the sensors."""

    @property
    def counts(self) -> Counter[str]:
        """The counters of all cores."""


class CoreRun:
    """Runs cores tick by tick. Mules are numbered after the sensors. `origin` has the community of each sensor, and its
    size."""

    def __init__(self, world: FieldWorld, schedule: Schedule, radio: Radio, beta: float) -> None:
        self.world, self.schedule, self.radio = world, schedule, radio
        self.field: Final = world.field
        self.now = 0
        self.transfers: list[tuple[int, int, int, int]] = []
        self.deliveries: list[tuple[int, int, int, int]] = []
        self.accounts = [EnergyAccount(radio, radio.initial_j) for _ in range(world.field.sensors)]
        self.cells: dict[int, Cell] = dict(
            enumerate(zip(*map(list, cells_of(world.field, world.x, world.y)), strict=True))
        )
        self.origin: dict[int, tuple[int, int]] = dict.fromkeys(range(world.field.sensors), (0, 1))
        self.leg = [-1] * world.field.mules
        self._first_death: int | None = None
        self._expiry = schedule.clock.after(world.events.time + beta).tolist()

    @property
    def is_instant(self) -> bool:
        """Whether transfers take no time."""
        return not isfinite(self.schedule.clock.rate)

    @property
    def hold(self) -> int:
        """A copy is sent on in the tick after its arrival."""
        return 0 if self.is_instant else 1

    def run(self, cores: Cores, *, until_death: bool = False) -> None:
        """Run to the end, or to the first death of a sensor."""
        schedule, created = self.schedule, self.schedule.created.tolist()
        columns = (schedule.tick, schedule.kind, schedule.mule, schedule.target)
        occurrences = list(zip(*(column.tolist() for column in columns), strict=True))
        at = event = 0
        for tick in range(schedule.clock.ticks):
            self.now = tick
            cores.advance()
            while at < len(occurrences) and occurrences[at][0] <= tick:
                _, kind, mule, target = occurrences[at]
                if kind == Occurrence.NEW_LEG:
                    self.leg[mule] = target
                cores.occur(Occurrence(kind), mule, target)
                at += 1
            while event < len(created) and created[event] <= tick:
                cores.create(int(self.world.events.sensor[event]), self._event(event))
                event += 1
            while cores.step() and self.is_instant:
                pass
            if until_death and self._first_death is not None:
                return

    def wants(self, mule: int) -> Callable[[FieldEvent], bool]:
        """The interest of a mule."""
        (most1, most2), events = self.world.want[mule].tolist(), self.world.events
        a1, a2 = events.a1.tolist(), events.a2.tolist()
        return lambda event: a1[event.id.number] < most1 and a2[event.id.number] < most2

    def senders(self, nodes: int) -> list[int]:
        """Nodes in the order in which they send in this tick."""
        first = self.now * SENDER_STEP % max(1, nodes)
        return [*range(first, nodes), *range(first)]

    def log(self, sender: int, receiver: int, event: FieldEvent) -> None:
        self.transfers.append((self.now, sender, receiver, event.id.number))

    def deliver(self, mule: int, event: FieldEvent, hops: int) -> None:
        """A mule receives an event that it wants for the first time."""
        self.deliveries.append((self.now, mule, event.id.number, hops))

    def check_death(self, sensor: int) -> None:
        """A sensor has paid."""
        if self._first_death is None and self.accounts[sensor].joules <= 0:
            self._first_death = self.now

    def square(self, sensor: int, other: int) -> float:
        """The squared distance from a sensor to another, or to a mule at the beginning of this tick."""
        x, y = self.world.x, self.world.y
        if other < self.field.sensors:
            return _square(x[sensor] - x[other], y[sensor] - y[other])
        legs, leg, clock = self.world.legs, self.leg[other - self.field.sensors], self.schedule.clock
        if isnan(legs.x0[leg]):
            return float((self.field.side / self.field.cells) ** 2)
        time = self.now / clock.rate if isfinite(clock.rate) else float(clock.times[self.now])
        took = legs.arrive[leg] - legs.start[leg]
        part = min(max((time - legs.start[leg]) / took, 0.0), 1.0) if took > 0 else 1.0
        at_x = legs.x0[leg] + part * (legs.x1[leg] - legs.x0[leg])
        at_y = legs.y0[leg] + part * (legs.y1[leg] - legs.y0[leg])
        return _square(at_x - x[sensor], at_y - y[sensor])

    def result(self, cores: Cores) -> SimulationResult:
        counts, clock, queues = cores.counts, self.schedule.clock, list(cores.queues)
        counts["hops"] = len(self.transfers)
        delivered = np.array(self.deliveries, np.int64).reshape(-1, 4)
        death = self._first_death
        return SimulationResult(
            counts={name: counts[name] for name in COUNTS},
            delivered=delivered,
            delay_s=clock.ends(delivered[:, 0]) - self.world.events.time[delivered[:, 2]],
            energy=np.array([account.joules for account in self.accounts]),
            held=sum(len(list(queue.own())) for queue in queues),
            under_way=sum(copy.mule is not None for queue in queues for copy in queue.copies),
            first_death_s=float(clock.ends(np.array(death))) if death is not None else None,
            wanted=count_wanted_pairs(self.world, counts["created"]),
            ended_s=float(clock.ends(np.array(self.now))) if clock.ticks else 0.0,
            transfers=np.array(self.transfers, np.int64).reshape(-1, 4),
        )

    def _event(self, number: int) -> FieldEvent:
        sensor = int(self.world.events.sensor[number])
        return FieldEvent(EventId(sensor, 0, number), *self.origin[sensor], self.now, self._expiry[number])


def _square(dx: float, dy: float) -> float:
    """The squared length, with products: `** 2` of a single float is not always the nearest float to the square."""
    return float(dx * dx + dy * dy)
