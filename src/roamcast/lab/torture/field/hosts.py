"""Hosts of the field: a station, its clock, and what it has stored."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from roamcast.collect.protocol.communities import Cell
from roamcast.collect.protocol.events import EventId
from roamcast.collect.protocol.field_node import FieldNode, NodeSettings, NodeState
from roamcast.collect.protocol.messages import Stop
from roamcast.collect.protocol.mule import Base, Mule, MuleSettings, MuleState
from roamcast.collect.protocol.station import Station
from roamcast.lab.torture.field.points import Phase

if TYPE_CHECKING:
    from roamcast.lab.torture.field.simulation import FieldSimulation

__all__ = ["BaseHost", "Host", "MuleHost", "SensorHost"]

_DOWN: Final = 100_000, 3_000_000
_LEAST_DELAY: Final = 2_000


class Host:
    """A station that crashes. Its clock is ahead or behind, and runs a little fast or slow; it survives crashes."""

    kind = ""
    station: Station

    def __init__(self, name: str, cell: Cell | None, simulation: FieldSimulation, rng: Random) -> None:
        self.name, self.cell = name, cell
        self.up = True
        self.crashes = 0
        self._simulation, self._rng = simulation, rng
        self._offset, self._drift = rng.randrange(-(10**9), 10**9), 1 + rng.uniform(-1e-3, 1e-3)
        self._timer = 0

    def now(self) -> int:
        """The time of the host's clock, in milliseconds."""
        return self._offset + int(self._simulation.now * self._drift) // 1000

    def hear(self, frame: bytes) -> None:
        self.do("hear", lambda: self.station.hear(frame, self.now()))

    def do(self, what: str, call: Callable[[], object]) -> None:
        """Let the station handle something, store its state, and send its frames; unless it crashes."""
        if not self.up:
            return
        simulation = self._simulation
        if simulation.crashes_at([f"{self.kind} {what}"], Phase.BEFORE):
            self.crash()
            return
        stored = simulation.variant.sends_first and simulation.armed and self.save()
        taken = self.events_taken()
        call()
        frames = self.station.take_frames()
        kind = f"{self.kind} {what if self.events_taken() == taken else 'take'}"
        if stored and simulation.crashes_at([kind], Phase.STORED):
            simulation.transmit(self, frames)
            self.crash(stored)
            return
        simulation.ledger.note_step(self)
        if simulation.crashes_at([kind], Phase.STORED):
            self.crash()
        elif len(frames) > 1 and simulation.crashes_at([kind], Phase.PARTLY):
            simulation.transmit(self, frames[: self._rng.randrange(1, len(frames))])
            self.crash()
        else:
            simulation.transmit(self, frames)
            self._set_timer()

    def crash(self, stored: object = None) -> None:
        """Lose everything that is not stored, and start again a little later."""
        simulation, state = self._simulation, stored or self.save()
        self.up = False
        self.crashes += 1
        simulation.observe(self.name, "crashes")
        simulation.later(self._rng.randrange(*_DOWN), lambda: self._start(state))

    def events_taken(self) -> int:
        """How many events the station has taken from others."""
        raise NotImplementedError

    def save(self) -> object:
        """What is stored."""
        raise NotImplementedError

    def load(self, state: object) -> None:
        """Make a station that continues."""
        raise NotImplementedError

    def _start(self, state: object) -> None:
        self.load(state)
        self.up = True
        self._simulation.observe(self.name, "starts")
        self._simulation.ledger.note_step(self)
        self._set_timer()

    def _set_timer(self) -> None:
        self._timer = timer = self._simulation.ticket()
        delay = max(_LEAST_DELAY, int((self.station.next_time() - self.now()) * 1000 / self._drift))
        self._simulation.later(delay, lambda: self._ring(timer))

    def _ring(self, timer: int) -> None:
        if timer == self._timer and self.up:
            self.do("wake", lambda: self.station.wake(self.now()))


class SensorHost(Host):
    """A sensor at its place."""

    kind = "sensor"
    station: FieldNode

    def __init__(self, settings: NodeSettings, simulation: FieldSimulation, rng: Random) -> None:
        super().__init__(f"s{settings.me}", settings.community.cells[settings.me], simulation, rng)
        self.settings = settings
        self.load(None)
        self._set_timer()

    def sense(self, content: bytes) -> None:
        def sense() -> None:
            event = self.station.sense(content, self.now())
            self._simulation.ledger.sensed(self, event)

        self.do("sense", sense)

    def events_taken(self) -> int:
        counts = self.station.core.counts
        return counts["accepted"] + counts["kept"]

    def save(self) -> NodeState:
        return self.station.state()

    def load(self, state: object) -> None:
        known = state if isinstance(state, NodeState) else None
        self.station = self._simulation.variant.node(self.settings, known, self.now())


class MuleHost(Host):
    """A mule that goes from cell to cell. Between them it is nowhere."""

    kind = "mule"
    station: Mule

    def __init__(self, settings: MuleSettings, simulation: FieldSimulation, rng: Random) -> None:
        super().__init__(f"m{settings.me}", None, simulation, rng)
        self.settings = settings
        self.load(None)
        self._set_timer()

    def go(self, cell: Cell | None, stay_ms: int, *, tells: bool) -> None:
        """Go to a cell; with `tells` the mule knows how long it will be there."""
        self.cell = cell
        now = self.now()
        around = [(cell[0] + c, cell[1] + r) for c in (-1, 0, 1) for r in (-1, 0, 1)] if cell and tells else []
        stops = tuple(Stop(place, now, now + stay_ms) for place in around)
        self.do("hear", lambda: self.station.take_path(stops, now))

    def events_taken(self) -> int:
        return self.station.core.counts["to_mules"]

    def save(self) -> MuleState:
        return self.station.state()

    def load(self, state: object) -> None:
        known = state if isinstance(state, MuleState) else None
        self.station = self._simulation.variant.mule(self.settings, known, self.now())


class BaseHost(Host):
    """A base that stores which events it has taken."""

    kind = "base"
    station: Base

    def __init__(self, me: int, cell: Cell, simulation: FieldSimulation, rng: Random) -> None:
        super().__init__(f"b{me}", cell, simulation, rng)
        self._me = me
        self.load(None)
        self._set_timer()

    def events_taken(self) -> int:
        return len(self.station.seen)

    def save(self) -> tuple[int, frozenset[EventId]]:
        return self.station.incarnation, frozenset(self.station.seen)

    def load(self, state: object) -> None:
        incarnation, seen = state if isinstance(state, tuple) else (0, frozenset())
        times = self._simulation.times
        self.station = self._simulation.variant.base(
            self._me, times=times, incarnation=incarnation, seen=seen, now=self.now()
        )
