"""A host that runs an office, crashes and restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import LetterBundle, OfficeEffect, OfficeInput, ScheduleWork, Transmit, WorkDue
from roamcast.deliver.office import Office
from roamcast.deliver.port import PendingWork
from roamcast.deliver.requests import Reply
from roamcast.errors import RoamcastError
from roamcast.lab.torture.crashes import CrashPhase, kind_of
from roamcast.lab.torture.disk import CrashError, FaultyDisk

if TYPE_CHECKING:
    from roamcast.lab.torture.simulation import TortureSimulation

__all__ = ["LIMITS", "AnswerHandler", "Envelope", "Host"]

AnswerHandler = Callable[[Reply | RoamcastError], None]

# Small, so that every limit is reached.
LIMITS: Final = OfficeLimits(
    bundle_letters=4,
    chunk_letters=3,
    mailbox_letters=10,
    held_letters=4,
    queue_letters=30,
    unposted_letters=8,
    message_bytes=400,
    first_retry=200_000,
    longest_retry=1_600_000,
)

_DOWN = 50_000, 1_500_000
_GROUP = 4_000


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the simulation attaches to a message: who waits for the answer, and the route of forwarded letters.

    A step of the route is an office and the latest epoch it knew of the receiver.
    """

    answer: AnswerHandler | None = None
    route: tuple[tuple[str, int], ...] = ()


_PLAIN = Envelope()


class Host:
    """Only the disk survives a crash. `clock_offset` makes its clock differ and jump."""

    def __init__(self, domain: str, simulation: TortureSimulation, rng: Random) -> None:
        self.domain = domain
        self.disk: FaultyDisk = simulation.variant.disk()
        self.clock_offset = 0
        self.crashes = 0
        self.handled = 0
        self._simulation = simulation
        self._rng = rng
        self._groups = rng.random() < 0.5
        self._inbox: list[tuple[OfficeInput, Envelope]] = []
        self._timers: dict[PendingWork, int] = {}
        self._office: Office | None = None
        self.start()

    @property
    def up(self) -> bool:
        return self._office is not None

    def start(self) -> None:
        if self._office is None:
            self._simulation.observe(self.domain, "starts")
            self._office = self._simulation.variant.office(self.domain, self.disk, LIMITS)
            for effect in self._office.recover():
                self._do(None, _PLAIN, effect)

    def crash(self) -> None:
        if self._office is None:
            return
        self._simulation.observe(self.domain, "crashes")
        self._office = None
        self._timers.clear()
        self._inbox = []
        self.disk.lose_power()
        self.crashes += 1
        self._simulation.checker.check_host(self)
        self._simulation.later(self._rng.randrange(*_DOWN), self.start)

    def receive(self, message: OfficeInput, envelope: Envelope = _PLAIN) -> None:
        """Handle a message at once, or together with those that come a little later (group commit)."""
        if self._office is None:
            return
        self._inbox.append((message, envelope))
        if not self._groups:
            self._handle()
        elif len(self._inbox) == 1:
            life = self.crashes
            self._simulation.later(_GROUP, lambda: self._handle() if life == self.crashes else None)

    def _handle(self) -> None:
        """Handle the inbox unless the host crashes: commit, then carry out the effects one by one."""
        office, group, simulation = self._office, self._inbox, self._simulation
        self._inbox = []
        if office is None:
            return
        self.handled += len(group)
        kinds = [kind_of(message) for message, _ in group]
        for message, _ in group:
            simulation.observe(self.domain, message)
        if simulation.crashes_at(kinds, CrashPhase.BEFORE):
            self.crash()
            return
        self.disk.stop_at_commit = simulation.crashes_at(kinds, CrashPhase.UNSYNCED)
        try:
            outcomes = office.handle_all([message for message, _ in group], self._now())
        except CrashError:
            self.crash()
            return
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, RoamcastError):
                simulation.checker.office_failed(self.domain, kinds, outcome)  # an office must not fail on any input
                return
        simulation.checker.check_host(self)
        if simulation.crashes_at(kinds, CrashPhase.SYNCED):
            self.crash()
            return
        steps = list(_steps(group, outcomes))
        partly = len(steps) > 1 and simulation.crashes_at(kinds, CrashPhase.PARTLY)
        for outcome in outcomes:
            if isinstance(outcome, RoamcastError):
                simulation.observe(self.domain, outcome)
        for step in steps[: self._rng.randrange(1, len(steps)) if partly else None]:
            self._do(*step)
        if partly:
            self.crash()

    def _do(self, message: OfficeInput | None, envelope: Envelope, effect: OfficeEffect | RoamcastError) -> None:
        if isinstance(effect, Transmit):
            onward = _PLAIN
            if isinstance(message, LetterBundle) and isinstance(effect.message, LetterBundle):
                onward = Envelope(route=self._simulation.checker.check_route(self, message, envelope.route))
            self._simulation.transmit(self.domain, effect, onward)
        elif isinstance(effect, ScheduleWork):
            self._set(effect)
        elif not isinstance(effect, Reply | RoamcastError):
            self._simulation.notify(self.domain, effect)
        elif envelope.answer is not None:
            envelope.answer(effect)

    def _set(self, wake: ScheduleWork) -> None:
        token = self._simulation.ticket()
        self._timers[wake.work] = token
        delay = self._rng.randrange(wake.earliest, wake.latest + 1)
        self._simulation.later(delay, lambda: self._ring(wake.work, token))

    def _ring(self, work: PendingWork, token: int) -> None:
        if self._timers.get(work) == token:
            del self._timers[work]
            self.receive(WorkDue(work))

    def _now(self) -> int:
        return self._simulation.now + self.clock_offset


def _steps(
    group: list[tuple[OfficeInput, Envelope]], outcomes: list[list[OfficeEffect] | Exception]
) -> Iterator[tuple[OfficeInput, Envelope, OfficeEffect | RoamcastError]]:
    """All effects and errors, in order."""
    for (message, envelope), outcome in zip(group, outcomes, strict=True):
        if isinstance(outcome, RoamcastError):
            yield message, envelope, outcome
        elif not isinstance(outcome, Exception):
            yield from ((message, envelope, effect) for effect in outcome)
