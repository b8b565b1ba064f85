"""A network with faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from roamcast.lab.torture.network import NO_FAULTS, Network, NetworkFaults


class EventQueue:
    """Runs events in order of time."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, Callable[[], None]]] = []

    def later(self, delay: int, event: Callable[[], None]) -> None:
        self.events.append((delay, len(self.events), event))

    def run(self) -> None:
        for _, _, event in sorted(self.events):
            event()
        self.events.clear()


def carry_all(faults: NetworkFaults, count: int = 1000) -> list[int]:
    queue, arrived = EventQueue(), list[int]()
    network = Network(Random(1), queue.later, faults)
    for number in range(count):
        network.carry("a", "b", lambda number=number: arrived.append(number))
    queue.run()
    assert network.late == 0
    return arrived


def test_every_message_arrives_once_without_faults() -> None:
    assert sorted(carry_all(NO_FAULTS)) == list(range(1000))


def test_faults_lose_repeat_and_reorder_messages_with_the_given_probabilities() -> None:
    arrived = carry_all(NetworkFaults(0.2, 0.2, 0.1))
    counts = Counter(arrived)
    assert 150 < 1000 - len(counts) < 250
    assert 100 < sum(count > 1 for count in counts.values()) < 220
    assert arrived != sorted(arrived)


def test_partition_blocks_a_pair_or_an_isolated_party_until_it_ends() -> None:
    queue, arrived = EventQueue(), list[str]()
    network = Network(Random(1), queue.later, NO_FAULTS)
    network.cut("a", "b", 10**9)
    network.isolate("c", 10**9)
    for source, target in ("ab", "ba", "ac", "ca", "ad"):
        network.carry(source, target, lambda pair=source + target: arrived.append(pair))
    queue.run()
    assert arrived == ["ad"]
    assert not any(network.is_cut(*pair) for pair in ("ab", "ba", "ac", "ca"))
