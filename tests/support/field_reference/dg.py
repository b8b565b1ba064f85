"""Reference implementation of direct gathering."""

from __future__ import annotations

from field_reference.queues import Copy, CopyQueue
from field_reference.run import ReferenceRun
from roamcast.collect.simulation.protocols import DG

__all__ = ["ReferenceDG"]


class ReferenceDG:
    """Each mule collects the newest event from one sensor in reach, round robin, or from each of them."""

    def __init__(self, run: ReferenceRun, protocol: DG) -> None:
        self._run, self._protocol = run, protocol
        self.queues = [CopyQueue(protocol.K, by_successes=False) for _ in range(run.world.field.sensors)]
        self._last = dict.fromkeys(range(run.world.field.mules), -1)
        self._entries: dict[int, set[int]] = {}

    def set_cell_entries(self, entries: dict[int, set[int]]) -> None:
        """Set the mules that enter a cell, by tick."""
        self._entries = entries

    def begin_tick(self) -> None:
        run = self._run
        for contact in run.contacts:
            if contact.begin == run.now and self._protocol.resend != "once":
                self._forget(contact.sensor, contact.mule)
        if self._protocol.resend == "cell":
            for mule in self._entries.get(run.now, ()):
                for sensor in run.in_reach(mule):
                    self._forget(sensor, mule)

    def create(self, event: int) -> None:
        run = self._run
        self._expire()
        queue = self.queues[run.world.events.sensor[event]]
        if queue.is_full:
            run.counts["full"] += 1
        else:
            queue.copies.append(Copy(event, run.now - 1))

    def step(self) -> bool:
        run, rate_per = self._run, self._protocol.rate_per
        self._expire()
        sent: set[int] = set()
        for mule in range(run.world.field.mules):
            in_reach = run.in_reach(mule)
            turn = [s for s in in_reach if s > self._last[mule]] + [s for s in in_reach if s <= self._last[mule]]
            for sensor in turn:
                copy = self.queues[sensor].first(lambda copy, mule=mule: mule not in copy.sent_to)  # type: ignore[misc]
                if copy is None or (sensor in sent and run.sends_one(rate_per)):
                    continue
                run.give_to_mule(sensor, mule, copy.event, copy.hops + 1)
                run.counts["by_owner"] += 1
                copy.sent_to.add(mule)
                sent.add(sensor)
                self._last[mule] = sensor
                if run.takes_one(rate_per):
                    break
        return bool(sent)

    def _forget(self, sensor: int, mule: int) -> None:
        for copy in self.queues[sensor].copies:
            copy.sent_to.discard(mule)

    def _expire(self) -> None:
        for queue in self.queues:
            self._run.counts["expired"] += len(queue.remove(lambda copy: self._run.is_expired(copy.event)))
