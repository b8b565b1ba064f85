"""Random small fields, simulated by the compiled kernels and by the cores: both must give the same, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from random import Random

import numpy as np

from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.rules import CET, DG, Epidemic, Protocol, SprayAndWait
from roamcast.collect.simulation.contacts import cell_entries, find_contacts
from roamcast.collect.simulation.core_simulation import simulate_cores
from roamcast.collect.simulation.field import Field, draw_world
from roamcast.collect.simulation.results import SimulationResult
from roamcast.collect.simulation.simulate import simulate
from roamcast.lab.torture.crashes import CrashPlan
from roamcast.lab.torture.timeline import Observer

__all__ = ["AS_COMPILED", "KernelComparison", "KernelVariant"]

_MORTAL = Radio(initial_j=2e-4)


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """What is compared."""

    name: str
    description: str


AS_COMPILED = KernelVariant("correct", "The compiled kernels")


class KernelComparison:
    """One random field. Half of them run to the first death; in some, contacts are given instead of the geometry."""

    def __init__(self, seed: int, variant: KernelVariant, observer: Observer | None = None) -> None:
        self._seed, self._observer = seed, observer
        self._rng = Random(seed)  # noqa: S311  # not for security
        self.now = 0
        self.plan = CrashPlan(seed, self._rng, (), 0, 0)
        self.violations: list[str] = []
        self.counts: dict[str, int] = {}

    def run(self) -> None:
        rng = self._rng
        field, protocol = _random_field(rng), _random_protocol(rng)
        if self._observer is not None:
            self._observer(0, "field", f"{field} {protocol}")
        world = draw_world(field, self._seed)
        contacts = find_contacts(world, cell_entries(field, world.legs)) if rng.random() < 0.2 else None
        until_death = rng.random() < 0.5
        radio = _MORTAL if until_death else None
        fast = simulate(world, protocol, radio, contacts=contacts, until_death=until_death, log=True)
        slow = simulate_cores(world, protocol, radio, contacts=contacts, until_death=until_death)
        self.counts = {"fields": 1, "events": fast.counts["created"], "transfers": fast.counts["hops"]}
        for part in fields(SimulationResult):
            one, other = getattr(fast, part.name), getattr(slow, part.name)
            if not (np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other):
                self.violations.append(f"different: {part.name} of {protocol}: {one} compiled, {other} from the cores")


def _random_field(rng: Random) -> Field:
    pick = rng.choice
    return Field(
        side=100.0,
        cells=rng.randint(1, 8),
        sensors=rng.randint(1, 14),
        mules=rng.randint(1, 4),
        gap_s=pick((5.0, 20.0)),
        duration_s=pick((30.0, 80.0)),
        silence_s=10.0,
        speed_max=pick((3.0, 12.0)),
        pause_max_s=10.0,
        rate=pick((1.0, 2.5, inf)),
    )


def _random_protocol(rng: Random) -> Protocol:
    """CET more often than the others: it has more rules."""
    pick = rng.choice
    kind = rng.randrange(8)
    if kind == 0:
        return Epidemic(K=pick((3.0, inf)), beta=pick((15.0, inf)))
    if kind == 1:
        return SprayAndWait(L=pick((1, 2, 5, 16)), K=pick((3.0, inf)), beta=pick((15.0, inf)))
    if kind == 2:
        return DG(
            K=pick((3, 200)),
            beta=pick((15.0, 2000.0)),
            resend=pick(("cell", "contact", "once")),
            rate_per=pick(("node", "receiver", "sender", "link")),
        )
    return CET(
        K=pick((3, 8, 200)),
        alpha=pick((0.0, 1.0, 20.0)),
        beta=pick((15.0, 2000.0)),
        theta=pick((5.0, 9.9998)),
        gamma=pick((1.0, 4.0)),
        put_back=pick((True, False)),
        quiet_s=pick((0.0, 1.0)),
        resend=pick(("subscriber", "contact", "missing")),
        lost_root=pick(("rebuild", "cut")),
        rate_per=pick(("node", "receiver", "sender", "link")),
        hand_up=pick(("hop", "way")),
        left_behind=pick(("dropped", "waits")),
        stores=pick(("wanted", "all")),
        gives=pick(("moves", "copies")),
    )
