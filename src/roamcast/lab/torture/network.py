"""A network that delays, drops, repeats, reorders and partitions, until it is told to be calm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

__all__ = ["Network", "Weather"]

Schedule = Callable[[int, Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad it is: chances for each message, delays in microseconds."""

    drop: float
    repeat: float
    late: float
    delay: tuple[int, int] = (500, 20_000)
    lateness: tuple[int, int] = (100_000, 3_000_000)


CALM = Weather(0.0, 0.0, 0.0, (500, 5_000))


class Network:
    """Between any two parties, named by text. What is late comes out of order."""

    def __init__(self, rng: Random, schedule: Schedule, weather: Weather) -> None:
        self._rng = rng
        self._schedule = schedule
        self._cut: set[frozenset[str]] = set()
        self._alone: set[str] = set()
        self.weather = weather
        self.late = 0

    def carry(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Call `deliver` later, once, several times or never."""
        rng, weather = self._rng, self.weather
        if self.parted(source, target) or rng.random() < weather.drop:
            return
        self._send(deliver)
        while rng.random() < weather.repeat:
            self._send(deliver)

    def parted(self, source: str, target: str) -> bool:
        if source in self._alone or target in self._alone:
            return True
        return bool(self._cut) and frozenset((source, target)) in self._cut

    def cut(self, one: str, other: str, until: int) -> None:
        pair = frozenset((one, other))
        self._cut.add(pair)
        self._schedule(until, lambda: self._cut.discard(pair))

    def isolate(self, party: str, until: int) -> None:
        self._alone.add(party)
        self._schedule(until, lambda: self._alone.discard(party))

    def calm(self) -> None:
        """Everything arrives once from now on."""
        self.weather = CALM
        self._cut.clear()
        self._alone.clear()

    def _send(self, deliver: Callable[[], None]) -> None:
        rng, weather = self._rng, self.weather
        if rng.random() < weather.late:
            self.late += 1
            self._schedule(_between(rng, weather.lateness), lambda: self._come_late(deliver))
        else:
            self._schedule(_between(rng, weather.delay), deliver)

    def _come_late(self, deliver: Callable[[], None]) -> None:
        self.late -= 1
        deliver()


def _between(rng: Random, bounds: tuple[int, int]) -> int:
    least, most = bounds
    return least + int(rng.random() * (most - least))
