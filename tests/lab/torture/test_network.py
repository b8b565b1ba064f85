"""A bad network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from roamcast.lab.torture.network import CALM, Network, Weather


class Clock:
    """Calls in order of time."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, Callable[[], None]]] = []

    def later(self, delay: int, event: Callable[[], None]) -> None:
        self.events.append((delay, len(self.events), event))

    def run(self) -> None:
        for _, _, event in sorted(self.events):
            event()
        self.events.clear()


def carried(weather: Weather, count: int = 1000) -> list[int]:
    clock, arrived = Clock(), list[int]()
    network = Network(Random(1), clock.later, weather)
    for number in range(count):
        network.carry("a", "b", lambda number=number: arrived.append(number))
    clock.run()
    assert network.late == 0
    return arrived


def test_in_calm_weather_everything_arrives_once() -> None:
    """In whatever order."""
    assert sorted(carried(CALM)) == list(range(1000))


def test_in_bad_weather_messages_are_lost_repeated_and_reordered() -> None:
    """About as often as the weather says."""
    arrived = carried(Weather(0.2, 0.2, 0.1))
    counts = Counter(arrived)
    assert 150 < 1000 - len(counts) < 250
    assert 100 < sum(count > 1 for count in counts.values()) < 220
    assert arrived != sorted(arrived)


def test_who_is_cut_off_hears_nothing_until_it_ends() -> None:
    """A pair, or one from all."""
    clock, arrived = Clock(), list[str]()
    network = Network(Random(1), clock.later, CALM)
    network.cut("a", "b", 10**9)
    network.isolate("c", 10**9)
    for source, target in ("ab", "ba", "ac", "ca", "ad"):
        network.carry(source, target, lambda pair=source + target: arrived.append(pair))
    clock.run()
    assert arrived == ["ad"]
    assert not any(network.parted(*pair) for pair in ("ab", "ba", "ac", "ca"))
