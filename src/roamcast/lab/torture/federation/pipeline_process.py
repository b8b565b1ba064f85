"""The process of a pipeline: batch after batch. After a crash it repeats the batch that it was in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roamcast.deliver.outbox import PipelineStatus
from roamcast.journal.bodies import LINK
from roamcast.lab.torture.federation.points import Phase
from roamcast.lab.torture.federation.rows import PipelineState

if TYPE_CHECKING:
    from roamcast.lab.torture.federation.host import Host

__all__ = ["PipelineProcess"]

_PAUSE: Final = 50_000, 500_000
_DOWN: Final = 100_000, 2_000_000


class PipelineProcess:
    """The state and the offsets of the batch under way survive a crash."""

    def __init__(self, host: Host) -> None:
        self.id = f"pipeline-of-{host.domain}"
        self.state = PipelineState()
        self.crashes = 0
        self._host = host
        self._pipeline = host.simulation.variant.pipeline(self.id)
        self._planned: dict[str, int] | None = None
        self._read = 0  # appends

    @property
    def idle(self) -> bool:
        """Whether everything is read."""
        return self._planned is None and self._read == len(self._host.disk.written)

    def tick(self) -> None:
        """Process a batch, if there is anything to read."""
        host, rng = self._host, self._host.rng
        if self.idle:
            host.simulation.later(rng.randrange(*_PAUSE), self.tick)
            return
        if self._planned is None:
            self._planned = self._plan()
        done = self._run(self._planned)
        if not done:
            self.crashes += 1
            host.simulation.observe(host.domain, "pipeline crashes")
        host.simulation.later(rng.randrange(*(_PAUSE if done else _DOWN)), self.tick)

    def _plan(self) -> dict[str, int]:
        """The oldest records of all journals: mostly all that there are."""
        rng, written = self._host.rng, self._host.disk.written
        begin = self._read
        self._read = len(written) if rng.random() < 0.7 else rng.randrange(begin, len(written)) + 1
        return {**self.state.offsets, **dict(written[begin : self._read])}

    def _run(self, through: dict[str, int]) -> bool:
        host = self._host
        if self._crashes(Phase.BEFORE) or host.disk.full:
            return False
        batch = self._pipeline.run(self.state, host.disk.journals, through)
        for office, letters in batch.letters.items():
            host.disk.outbox.put(office, self.id, batch.state.batch, letters)
            if LINK in office:
                host.simulation.ledger.forwarded(host, batch.events[office])
            else:
                host.simulation.ledger.delivered(host, letters, batch.events[office], batch.state.batch)
            if self._crashes(Phase.PARTLY):
                return False
        if self._crashes(Phase.DONE):
            return False
        host.simulation.ledger.committed(host, self.state, through)
        self.state, self._planned = batch.state, None
        offsets = dict(batch.state.offsets)
        host.disk.outbox.write_status(PipelineStatus(self.id, batch.state.batch, {}, read_offsets=offsets))
        return True

    def _crashes(self, phase: Phase) -> bool:
        return self._host.simulation.plan.crashes_at(["batch"], phase, self._host.simulation.now)
