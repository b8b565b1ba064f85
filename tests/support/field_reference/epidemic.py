"""Reference implementation of Epidemic."""

from __future__ import annotations

from field_reference.communities import neighbours
from field_reference.queues import Copy, CopyQueue
from field_reference.run import ReferenceRun
from roamcast.collect.simulation.protocols import Epidemic

__all__ = ["ReferenceEpidemic"]

SENDER_STEP = 0x9E3779B1
"""The node that sends first changes from tick to tick by this step."""


class ReferenceEpidemic:
    """In each tick every node sends one event: the newest that a node in reach lacks and has room for."""

    def __init__(self, run: ReferenceRun, protocol: Epidemic) -> None:
        self._run = run
        field = run.world.field
        self._near = neighbours(run.world)
        rooms = [protocol.K] * field.sensors + [float("inf")] * field.mules
        self._all = [CopyQueue(room, by_successes=False) for room in rooms]
        self._seen: list[set[int]] = [set() for _ in rooms]
        """Events that each node has or had; it does not take them again."""

    @property
    def queues(self) -> list[CopyQueue]:
        """Queues of the sensors."""
        return self._all[: self._run.world.field.sensors]

    def begin_tick(self) -> None:
        """Nothing to do: contacts are looked up when needed."""

    def create(self, event: int) -> None:
        self._expire()
        sensor = int(self._run.world.events.sensor[event])
        if self._all[sensor].is_full:
            self._run.counts["full"] += 1
        else:
            self._take(sensor, event, self._run.now - 1, 0)

    def step(self) -> bool:
        run, before = self._run, len(self._run.transfers)
        self._expire()
        receivers: set[int] = set()
        nodes = range(len(self._all))
        first = run.now * SENDER_STEP % len(nodes)
        for sender in (*nodes[first:], *nodes[:first]):
            self._send(sender, receivers)
        return len(run.transfers) > before

    def _send(self, sender: int, receivers: set[int]) -> None:
        run, instant = self._run, self._run.is_instant
        free = [
            other
            for other in self._neighbours(sender)
            if not self._all[other].is_full and (other not in receivers or instant)
        ]
        copy = self._all[sender].first(
            lambda copy: (
                (copy.arrived < run.now or instant) and any(copy.event not in self._seen[other] for other in free)
            )
        )
        if copy is None:
            return
        receiver = next(other for other in free if copy.event not in self._seen[other])
        receivers.add(receiver)
        self._transfer(sender, receiver, copy)
        self._take(receiver, copy.event, run.now, copy.hops + 1)

    def _transfer(self, sender: int, receiver: int, copy: Copy) -> None:
        run, sensors = self._run, self._run.world.field.sensors
        bits = run.world.field.event_bits
        run.counts["by_owner"] += sender == run.world.events.sensor[copy.event]
        if receiver >= sensors:
            run.give_to_mule(sender, receiver - sensors, copy.event, copy.hops + 1)
            return
        run.log(sender, receiver, copy.event)
        if sender < sensors:
            run.pay(sender, run.radio.send(bits, run.between(sender, receiver)))
        else:
            run.counts["put_back"] += 1
        run.pay(receiver, run.radio.receive(bits))

    def _neighbours(self, node: int) -> list[int]:
        """Mules in reach, then sensors; both ascending."""
        run, sensors = self._run, self._run.world.field.sensors
        if node >= sensors:
            return run.in_reach(node - sensors)
        mules = [run.name(m) for m in range(run.world.field.mules) if node in run.in_reach(m)]
        return mules + list(self._near[node])

    def _take(self, node: int, event: int, arrived: int, hops: int) -> None:
        self._seen[node].add(event)
        self._all[node].copies.append(Copy(event, arrived, hops=hops))

    def _expire(self) -> None:
        for node, queue in enumerate(self._all):
            expired = len(queue.remove(lambda copy: self._run.is_expired(copy.event)))
            self._run.counts["expired"] += expired if node < self._run.world.field.sensors else 0
