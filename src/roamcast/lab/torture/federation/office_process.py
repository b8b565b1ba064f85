"""The post office of a host, so that mailboxes follow subscribers to other domains. No letters are sent here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import OfficeEffect, OfficeInput, ScheduleWork, Transmit, WorkDue
from roamcast.deliver.office import Office
from roamcast.deliver.port import PendingWork
from roamcast.deliver.requests import ArrivalRefused, Arrive, Arrived, Departed
from roamcast.lab.torture.disk import FaultyDisk
from roamcast.node.office.visits import office_of

if TYPE_CHECKING:
    from roamcast.lab.torture.federation.host import Host

__all__ = ["OfficeProcess"]

_LIMITS: Final = OfficeLimits(first_retry=200_000, longest_retry=1_600_000)


class OfficeProcess:
    """The disk and the visitors, with the epoch of their last arrival, survive a crash."""

    def __init__(self, host: Host) -> None:
        self.disk = FaultyDisk()
        self.visitors: dict[str, int] = {}
        self._host = host
        self._timers: dict[PendingWork, int] = {}

    def start(self) -> None:
        self._timers.clear()
        self._office = Office(self._host.domain, self.disk, _LIMITS)
        for effect in self._office.recover():
            self._do(effect)

    def office_of(self, name: str) -> tuple[str | None, int]:
        """Where the mailbox of a subscriber of this domain is, and its epoch."""
        return office_of(self.disk, self._host.domain, name)

    def handle(self, message: OfficeInput) -> None:
        """Handle a message, if the host is up."""
        if not self._host.up:
            return
        if isinstance(message, Arrive):
            self.visitors[message.name] = max(self.visitors.get(message.name, 0), message.epoch or 0)
        (outcome,) = self._office.handle_all([message], self._host.simulation.now)
        if not isinstance(outcome, Exception):
            for effect in outcome:
                self._do(effect)

    def _do(self, effect: OfficeEffect) -> None:
        simulation, domain = self._host.simulation, self._host.domain
        match effect:
            case Transmit(to, message):
                simulation.network.carry(domain, to, partial(simulation.hosts[to].office.handle, message))
            case ScheduleWork(work):
                token = self._timers[work] = simulation.ticket()
                self._host.later(
                    self._host.rng.randrange(effect.earliest, effect.latest + 1), partial(self._ring, work, token)
                )
            case Arrived(name) | ArrivalRefused(name):
                client = simulation.visits.clients[name]
                simulation.network.carry(domain, client.id, partial(client.notice, domain, effect))
            case Departed(name, _, epoch):
                if self.visitors.get(name, epoch) < epoch:
                    del self.visitors[name]

    def _ring(self, work: PendingWork, token: int) -> None:
        if self._timers.get(work) == token:
            del self._timers[work]
            self.handle(WorkDue(work))
