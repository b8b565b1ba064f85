"""A network that delays, drops, repeats, reorders and partitions, until faults are switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

__all__ = ["Network", "NetworkFaults"]

Scheduler = Callable[[int, Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """Probabilities for each message; delays in microseconds."""

    drop: float
    repeat: float
    late: float
    delay: tuple[int, int] = (500, 20_000)
    lateness: tuple[int, int] = (100_000, 3_000_000)


NO_FAULTS = NetworkFaults(0.0, 0.0, 0.0, (500, 5_000))


class Network:
    """Carries messages between parties, named by strings. Late messages arrive out of order."""

    def __init__(self, rng: Random, schedule: Scheduler, faults: NetworkFaults) -> None:
        self._rng = rng
        self._schedule = schedule
        self._cut: set[frozenset[str]] = set()
        self._isolated: set[str] = set()
        self.faults = faults
        self.late = 0

    def carry(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Call `deliver` later, once, several times or never."""
        rng, faults = self._rng, self.faults
        if self.is_cut(source, target) or rng.random() < faults.drop:
            return
        self._send(deliver)
        while rng.random() < faults.repeat:
            self._send(deliver)

    def is_cut(self, source: str, target: str) -> bool:
        if source in self._isolated or target in self._isolated:
            return True
        return bool(self._cut) and frozenset((source, target)) in self._cut

    def cut(self, one: str, other: str, until: int) -> None:
        pair = frozenset((one, other))
        self._cut.add(pair)
        self._schedule(until, lambda: self._cut.discard(pair))

    def isolate(self, party: str, until: int) -> None:
        self._isolated.add(party)
        self._schedule(until, lambda: self._isolated.discard(party))

    def stop_faults(self) -> None:
        """Deliver every message exactly once from now on."""
        self.faults = NO_FAULTS
        self._cut.clear()
        self._isolated.clear()

    def _send(self, deliver: Callable[[], None]) -> None:
        rng, faults = self._rng, self.faults
        if rng.random() < faults.late:
            self.late += 1
            self._schedule(_between(rng, faults.lateness), lambda: self._deliver_late(deliver))
        else:
            self._schedule(_between(rng, faults.delay), deliver)

    def _deliver_late(self, deliver: Callable[[], None]) -> None:
        self.late -= 1
        deliver()


def _between(rng: Random, bounds: tuple[int, int]) -> int:
    least, most = bounds
    return least + int(rng.random() * (most - least))
