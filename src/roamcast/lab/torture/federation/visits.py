"""Subscribers that visit other domains: their requests go to the node that has their mailbox, and from there home."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from roamcast.deliver.requests import ArrivalRefused, Arrive, Arrived, Register
from roamcast.errors import UnavailableError
from roamcast.lab.torture.federation.clients import Call, SubscriberClient

if TYPE_CHECKING:
    from roamcast.lab.torture.federation.host import Host, Reply
    from roamcast.lab.torture.federation.simulation import FederationSimulation

__all__ = ["VisitLedger", "VisitorClient"]

_AGAIN: Final = 400_000
_PASSED_ON: Final = 500_000  # microseconds that the visited node waits for the home


class VisitorClient(SubscriberClient):
    """Goes from domain to domain. Its mailbox follows; each arrival has the next epoch."""

    def __init__(self, id: str, domain: str, simulation: FederationSimulation, rng: Random) -> None:
        self.name = f"{domain}.node.{id}"
        self.at = domain
        self.epoch = 1
        self.served = False
        self._previous = domain
        simulation.visits.clients[self.name] = self
        super().__init__(id, domain, simulation, rng)
        self._arrive(1)

    @property
    def idle(self) -> bool:
        return self.served and super().idle

    def visit(self, domain: str) -> None:
        """Go there, whatever is under way."""
        if self.served:
            self._previous = self.at
            self.at, self.served = domain, False
            self.epoch += 1
            self.simulation.observe(self.id, f"goes to {domain} in epoch {self.epoch}")
            self._arrive(self.epoch)

    def notice(self, office: str, notice: Arrived | ArrivalRefused) -> None:
        """An arrival has succeeded or failed."""
        if office != self.at or self.served:
            return
        if isinstance(notice, Arrived) and notice.epoch >= self.epoch:
            self.served, self.epoch = True, notice.epoch
        elif isinstance(notice, ArrivalRefused) and notice.epoch >= self.epoch:
            self.epoch = notice.epoch + 1
            self._arrive(self.epoch)

    def send(self, request: Call, answered: Reply) -> None:
        """To its home, or to the node that has its mailbox."""
        if not self.served:
            return
        if self.at == self.domain:
            super().send(self.simulation.visits.at_home(self, request), answered)
        else:
            super().send_to(self.at, partial(self._pass_on, request), answered)

    def _pass_on(self, request: Call, host: Host, reply: Reply) -> None:
        """At the visited node: the home serves the request."""
        epoch = host.office.visitors.get(self.name)
        if epoch is None:
            reply(UnavailableError(f"{self.name} is not here"))
            return
        attempt = self.attempt

        def serve(home: Host, answer: Reply) -> None:
            """A late one is left out while the home would believe it: HTTP does not repeat requests."""
            if attempt == self.attempt or home.office.office_of(self.name)[1] != epoch:
                home.serve_visitor(host.domain, self.name, epoch, request, answer)

        def failed(_: object) -> None:
            reply(UnavailableError("the home has not answered"))

        self.simulation.exchange(host, self.domain, serve, reply, failed, _PASSED_ON)

    def _arrive(self, epoch: int) -> None:
        if self.served or epoch != self.epoch:
            return
        self.simulation.visits.proved(self.name, epoch, self.at)
        office, network = self.simulation.hosts[self.at].office, self.simulation.network
        if self.at == self.domain:
            network.carry(self.id, self.at, partial(office.handle, Register(self.name)))
        if epoch > 1:
            network.carry(self.id, self.at, partial(office.handle, Arrive(self.name, epoch, self._previous)))
        self.simulation.later(_AGAIN, partial(self._arrive, epoch))


class VisitLedger:
    """To which office each subscriber has moved in which epoch, by its move proofs, and whom their homes believe."""

    def __init__(self, simulation: FederationSimulation) -> None:
        self.clients: dict[str, VisitorClient] = {}
        self.visits = 0
        self.passed_on = 0
        self._simulation = simulation
        self._owners: dict[str, dict[int, str]] = {}
        self._believed: dict[str, int] = {}  # the latest epoch, by name

    def proved(self, name: str, epoch: int, office: str) -> None:
        """A subscriber goes to an office."""
        owners = self._owners.setdefault(name, {})
        self.visits += epoch not in owners
        owners[epoch] = office

    def believed(self, name: str, epoch: int, office: str) -> None:
        """The home of a subscriber serves a request that this office has passed on."""
        self.passed_on += 1
        report = self._simulation.ledger.report
        if self._owners.get(name, {}).get(epoch) != office:
            report(f"forged: {office} spoke for {name} in epoch {epoch}, which was not there")
        elif epoch < self._believed.get(name, 0):
            report(f"outdated: {office} spoke for {name} in epoch {epoch}, after {self._believed[name]}")
        self._believed[name] = max(epoch, self._believed.get(name, 0))

    def at_home(self, client: VisitorClient, request: Call) -> Call:
        """The request of a subscriber that is at home."""
        epoch = client.epoch

        def serve(host: Host, reply: Reply) -> None:
            self._believed[client.name] = max(epoch, self._believed.get(client.name, 0))
            request(host, reply)

        return serve

    def forge(self, rng: Random) -> None:
        """An office speaks for a subscriber that is not there: it was there, will be, or never was."""
        name = rng.choice(sorted(self._owners))
        client, owners = self.clients[name], self._owners[name]
        home = self._simulation.hosts[client.domain]
        offices = [domain for domain in self._simulation.hosts if domain != client.domain]
        office, epoch = rng.choice(offices), max(owners) + rng.randrange(-2, 2)
        if owners.get(epoch) != office and home.up:

            def request(host: Host, reply: Reply) -> None:
                """Believing it is bad enough."""

            home.serve_visitor(office, name, epoch, request, lambda _: None)

    def outdate(self, rng: Random) -> None:
        """An office where a subscriber was passes on a request that it had kept."""
        name = rng.choice(sorted(self._owners))
        client, owners = self.clients[name], self._owners[name]
        past = [
            epoch for epoch, office in owners.items() if epoch < self._believed.get(name, 0) and office != client.domain
        ]
        home = self._simulation.hosts[client.domain]
        if past and home.up:
            epoch = rng.choice(past)
            home.serve_visitor(owners[epoch], name, epoch, lambda *_: None, lambda _: None)
