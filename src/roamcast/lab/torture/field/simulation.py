"""The simulation of a field: one event queue in total order, with random load and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from random import Random
from typing import Final

from roamcast.collect.protocol.communities import Cell, find_communities
from roamcast.collect.protocol.energy import Radio as RadioModel
from roamcast.collect.protocol.events import FieldEvent
from roamcast.collect.protocol.field_node import DutyCycle, NodeSettings
from roamcast.collect.protocol.frames import BROADCAST
from roamcast.collect.protocol.link import LinkTimes
from roamcast.collect.protocol.mule import MuleSettings
from roamcast.collect.protocol.policy import CollectPolicy
from roamcast.collect.protocol.rules import CET, DG
from roamcast.lab.torture.crashes import CrashPlan
from roamcast.lab.torture.field.hosts import BaseHost, Host, MuleHost, SensorHost
from roamcast.lab.torture.field.ledger import Ledger
from roamcast.lab.torture.field.points import POINTS, Phase
from roamcast.lab.torture.field.radio import Radio, RadioFaults
from roamcast.lab.torture.field.variants import FieldVariant
from roamcast.lab.torture.timeline import Observer, Timeline

__all__ = ["FieldSimulation"]

_STEP: Final = 100_000
_FAULTY: Final = 30_000_000
_MOST_EVENTS: Final = 400_000
_RECOVERY: Final = 8_000_000
_TOURS: Final = 2
_STAY: Final = 5_000_000
_SETTLE: Final = 8_000_000
_MULES: Final = 1_000
_BASES: Final = 2_000
_SHAPES: Final[Sequence[Sequence[Cell]]] = (
    ((0, 0), (1, 0), (2, 0), (3, 0)), ((0, 0), (1, 1), (2, 0)), ((0, 0), (0, 0), (1, 0)), ((0, 0), (1, 0)), ((0, 0),),
)  # fmt: skip


class FieldSimulation(Timeline):
    """Deterministic: everything follows from the seed and the variant."""

    def __init__(self, seed: int, variant: FieldVariant, observer: Observer | None = None) -> None:
        super().__init__(observer)
        self.variant = variant
        self.ledger = Ledger(self)
        self.frames = 0
        self._rng = rng = Random(seed)  # noqa: S311  # not for security
        self.plan = CrashPlan(seed, rng, POINTS, 2, 2)
        faults = RadioFaults(*(rng.uniform(0.0, most) for most in (0.3, 0.1, 0.1, 0.05, 0.05)))
        self.radio = Radio(rng, self, faults)
        duty = DutyCycle(1_500, 900) if rng.random() < 0.3 else None
        self.times = LinkTimes(beacon=500, retry=150, silence=2_000)
        self.beta = rng.choice((20_000, 300_000))
        protocol: CET | DG = DG(K=rng.choice((4, 12)), resend=rng.choice(("once", "cell")))
        if rng.random() < 0.85:
            protocol = CET(
                K=rng.choice((4, 12)),
                alpha=rng.choice((1, 20)),
                theta=rng.choice((0.0, 1.4e-3)),
                gamma=rng.choice((1, 4)),
                quiet_s=0.5,
                resend=rng.choice(("subscriber", "missing", "contact")),
                hand_up=rng.choice(("hop", "hop", "way")),
                left_behind=rng.choice(("dropped", "dropped", "waits")),
                lost_root=rng.choice(("rebuild", "cut")),
            )
        policy = CollectPolicy.of(protocol, 1000.0, 250.0)
        self.sensors = list(self._make_sensors(policy, duty))
        share = rng.choice((1, 1, 2))
        self.mules = [
            MuleHost(
                MuleSettings(_MULES + at, policy, _interest(at, share), rng.choice((3.0, inf)), self.times), self, rng
            )
            for at in range(rng.randrange(1, 4))
        ]
        self.base = BaseHost(_BASES, (0, 50), self, rng)
        self.armed = False
        """Whether there are crashes."""
        self._hosts: dict[int, Host] = {sensor.settings.me: sensor for sensor in self.sensors}
        self._hosts |= {mule.settings.me: mule for mule in self.mules}
        self._hosts[_BASES] = self.base
        self._left = _MOST_EVENTS

    @property
    def violations(self) -> list[str]:
        return self.ledger.violations

    @property
    def counts(self) -> dict[str, int]:
        ledger = self.ledger
        put_back = sum(mule.station.core.counts["put_back"] for mule in self.mules)
        relayed = sum(sensor.station.core.counts["passed_on"] for sensor in self.sensors)
        return {
            "events": len(ledger.events),
            "collected": len(ledger.collected),
            "taken": len(ledger.taken),
            "relayed": relayed,
            "put_back": put_back,
            "frames": self.radio.carried,
            "crashes": sum(host.crashes for host in self._hosts.values()),
            **{f"dropped_{rule}": ledger.drops[rule] for rule in ("full", "expired", "spent", "stranded")},
        }

    def run(self) -> None:
        """Faults for a while; then mules go everywhere, without faults, until all is quiet."""
        self.armed = True
        end = self.now + _FAULTY
        while (self.now < end or self.plan.done < 1) and self.now < 2 * _FAULTY and not self.violations:
            self._act()
            self._go_to(self.now + _STEP)
        self.armed = False
        self.radio.faults = RadioFaults()
        self._go_to(self.now + _RECOVERY)
        if not self.violations:
            self.ledger.check_recovered(self.sensors)
        for mule in self.mules:
            mule.station.core.room = inf  # a tour takes everything
        for _ in range(_TOURS):
            for cell in [*{host.cell for host in self.sensors}, (0, 50)]:
                for mule in self.mules:
                    mule.go(cell, _STAY // 1000, tells=True)
                self._go_to(self.now + _STAY)
                if self.violations:
                    return
        for mule in self.mules:
            mule.go(None, 0, tells=False)
        self._go_to(self.now + _SETTLE)
        if not self.violations:
            self.ledger.check_end(list(self._hosts.values()))

    def crashes_at(self, kinds: Sequence[str], phase: Phase) -> bool:
        return self.armed and self.plan.crashes_at(kinds, phase, self.now)

    def transmit(self, host: Host, frames: Sequence[bytes]) -> None:
        """Send frames to those in range. Who is not addressed rarely matters."""
        for frame in frames:
            self.frames += 1
            self.ledger.check_frame(host, frame)
            receiver = int.from_bytes(frame[11:15], "big")
            for me, other in self._hosts.items():
                if me == receiver or ((receiver == BROADCAST or self._rng.random() < 0.02) and other is not host):
                    self._carry(host, other, frame)

    def _carry(self, host: Host, other: Host, frame: bytes) -> None:
        if _in_range(host.cell, other.cell):
            self.radio.carry(frame, lambda heard: other.hear(heard) if _in_range(host.cell, other.cell) else None)

    def _make_sensors(self, policy: CollectPolicy, duty: DutyCycle | None) -> Iterator[SensorHost]:
        rng, cells = self._rng, dict[int, Cell]()
        for at in range(rng.randrange(2, 4)):
            shape = rng.choice(_SHAPES)
            cells |= {len(cells) + n: (c + 10 * at, r) for n, (c, r) in enumerate(shape)}
        model = RadioModel(initial_j=rng.choice((10.0, 1.5e-3)))
        for community in find_communities(cells):
            for member in community.members:
                settings = NodeSettings(
                    member, community, policy, self.beta, radio=model, seed=7, times=self.times, duty=duty
                )
                yield SensorHost(settings, self, rng)

    def _act(self) -> None:
        """Readings, moves and crashes of a tenth of a second."""
        rng = self._rng
        if rng.random() < 0.25:
            sensor = rng.choice(self.sensors)
            sensor.sense(rng.randbytes(rng.choice((8, 40, 300, 300, 900))))
        for mule in self.mules:
            if rng.random() < 0.03:
                place = rng.choice([*(sensor.cell for sensor in self.sensors), (0, 50), (0, 51), None])
                if place is not None:
                    place = place[0] + rng.randrange(-1, 2), place[1] + rng.randrange(-1, 2)
                mule.go(place, rng.randrange(1_000, 8_000), tells=rng.random() < 0.8)
            elif rng.random() < 0.01:
                mule.do("hear", lambda mule=mule: mule.station.enter_cell(mule.now()))  # type: ignore[misc]
        if self.plan.advance(self.now):
            host = rng.choice(list(self._hosts.values()))
            if host.up:
                host.crash()

    def _go_to(self, time: int) -> None:
        while (event := self.next_until(time)) is not None and not self.violations:
            event()
            self._left -= 1
            if self._left < 0:
                self.violations.append("never settles: too many frames")
        self.now = max(self.now, time)


def _in_range(one: Cell | None, other: Cell | None) -> bool:
    return one is not None and other is not None and abs(one[0] - other[0]) <= 1 and abs(one[1] - other[1]) <= 1


def _interest(mule: int, share: int) -> Callable[[FieldEvent], bool]:
    """Of all events, or of those with every other number."""
    return lambda event: (event.id.number + mule) % share == 0
