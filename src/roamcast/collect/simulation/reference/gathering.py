"""Direct gathering, by the letter."""

from __future__ import annotations

from roamcast.collect.simulation.protocols import DG
from roamcast.collect.simulation.reference.queues import Copy, Queue
from roamcast.collect.simulation.reference.run import Run

__all__ = ["Gathering"]


class Gathering:
    """Each mule takes from the sensors in reach in turn, or from each of them, the newest event."""

    def __init__(self, run: Run, rules: DG) -> None:
        self._run, self._rules = run, rules
        self.queues = [Queue(rules.K, by_successes=False) for _ in range(run.world.field.sensors)]
        self._last = dict.fromkeys(range(run.world.field.mules), -1)
        self._entries: dict[int, set[int]] = {}

    def call_at(self, entries: dict[int, set[int]]) -> None:
        """By tick: the mules that then enter a cell."""
        self._entries = entries

    def begin_tick(self) -> None:
        run = self._run
        for visit in run.visits:
            if visit.begin == run.now and self._rules.resend != "once":
                self._forget(visit.sensor, visit.mule)
        if self._rules.resend == "cell":
            for mule in self._entries.get(run.now, ()):
                for sensor in run.in_reach(mule):
                    self._forget(sensor, mule)

    def born(self, event: int) -> None:
        run = self._run
        self._expire()
        queue = self.queues[run.world.births.sensor[event]]
        if queue.is_full:
            run.counts["full"] += 1
        else:
            queue.copies.append(Copy(event, run.now - 1))

    def step(self) -> bool:
        run, rate_per = self._run, self._rules.rate_per
        self._expire()
        sent: set[int] = set()
        for mule in range(run.world.field.mules):
            in_reach = run.in_reach(mule)
            turn = [s for s in in_reach if s > self._last[mule]] + [s for s in in_reach if s <= self._last[mule]]
            for sensor in turn:
                copy = self.queues[sensor].first(lambda copy, mule=mule: mule not in copy.sent_to)  # type: ignore[misc]
                if copy is None or (sensor in sent and run.sends_one(rate_per)):
                    continue
                run.hand_over(sensor, mule, copy.event, copy.hops + 1)
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
            self._run.counts["expired"] += len(queue.take_out(lambda copy: self._run.is_expired(copy.event)))
