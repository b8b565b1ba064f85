"""The simulation of several data folders: one event queue in total order, with random load and faults."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any, Final

from roamcast.lab.torture.crashes import CrashPlan
from roamcast.lab.torture.federation.checks import check_quiet, check_removed, unfinished
from roamcast.lab.torture.federation.clients import SourceClient, SubscriberClient
from roamcast.lab.torture.federation.host import Host, Reply
from roamcast.lab.torture.federation.ledger import Ledger
from roamcast.lab.torture.federation.points import POINTS
from roamcast.lab.torture.federation.variants import FederationVariant
from roamcast.lab.torture.federation.visits import VisitLedger, VisitorClient
from roamcast.lab.torture.network import Network, NetworkFaults
from roamcast.lab.torture.timeline import Observer, Timeline

__all__ = ["FederationSimulation"]

_LOGGER: Final = "roamcast.node"
_PHASES: Final = 2
_EVENTS: Final = 40
"""Minimum of each seed."""

_ALONE, _IN_PAIRS = 2, 2
_LONGEST_FAULTS: Final = 30_000_000
_LONGEST_RECOVERY: Final = 60_000_000
_STEP: Final = 100_000
_MOST_EVENTS: Final = 100_000
_LATENESS: Final = 100_000, 6_000_000
_FAULT_DURATION: Final = 200_000, 6_000_000
_MOST_SUBSCRIPTIONS: Final = 4
_QUIET: Final = 5  # steps


class FederationSimulation(Timeline):
    """Deterministic: everything follows from the seed and the variant."""

    def __init__(self, seed: int, variant: FederationVariant, observer: Observer | None = None) -> None:
        super().__init__(observer)
        self.variant = variant
        self.handled = 0
        self._rng = rng = Random(seed)  # noqa: S311  # not for security
        drop, repeat, late = rng.uniform(0.0, 0.1), rng.uniform(0.0, 0.1), rng.uniform(0.0, 0.15)
        self._faults = NetworkFaults(drop, repeat, late, lateness=_LATENESS)
        self.network = Network(rng, self.later, self._faults)
        self.plan = CrashPlan(seed, rng, POINTS, _ALONE, _IN_PAIRS)
        self.ledger = Ledger(self)
        self.visits = VisitLedger(self)
        keep = rng.choice((3600.0, 3600.0, 4.0))
        self.hosts: dict[str, Host] = {}
        for at in range(rng.randrange(2, 4)):
            self.hosts[f"d{at}"] = Host(f"d{at}", self, rng, keep)
        for host in self.hosts.values():
            host.start()
            self.later(rng.randrange(_STEP), host.pipeline.tick)
        domains = list(self.hosts)
        self.sources = [
            SourceClient(f"s{at}", domains[at % len(domains)], self, rng) for at in range(rng.randrange(3, 6))
        ]
        self.subscribers = [
            (VisitorClient if at == 0 else SubscriberClient)(f"ann{at}", rng.choice(domains), self, rng)
            for at in range(rng.randrange(2, 4))
        ]

    @property
    def crashes(self) -> int:
        return sum(host.crashes + host.pipeline.crashes for host in self.hosts.values())

    @property
    def violations(self) -> list[str]:
        return self.ledger.violations

    @property
    def counts(self) -> dict[str, int]:
        ledger, visits = self.ledger, self.visits
        return {
            "events": len(ledger.events),
            "letters": ledger.letters,
            "promised": ledger.promised,
            "forwarded": sum(host.received for host in self.hosts.values()),
            "dropped": sum(map(len, ledger.dropped.values())),
            "visits": visits.visits,
            "passed_on": visits.passed_on,
            "crashes": self.crashes,
            "messages": self.handled,
        }

    def run(self) -> None:
        """Run phases with faults until there was enough of everything. Let all work finish after each phase."""
        log = logging.getLogger(_LOGGER)
        level = log.level
        log.setLevel(logging.CRITICAL)  # nodes complain about the faults
        try:
            self._run()
        finally:
            log.setLevel(level)

    def _run(self) -> None:
        for phase in range(1, _PHASES + 1):
            self.network.faults = self._faults
            end = self.now + _LONGEST_FAULTS
            while not self._enough(phase / _PHASES) and self.now < end and not self.ledger.violations:
                self._act(self._rng)
                self._go_to(self.now + _STEP)
            self._settle()
            check_quiet(self)
            if self.ledger.violations:
                return
        for subscriber in self.subscribers:
            while subscriber.subscriptions:
                subscriber.unsubscribe()
        self._settle()
        check_quiet(self)
        check_removed(self)

    def exchange(
        self,
        sender: Host,
        receiver: str,
        send: Callable[[Host, Reply], None],
        answered: Reply,
        failed: Callable[[object], None],
        timeout: int,
    ) -> None:
        """A signed request to a peer, which is accepted once, and by the process for which it was signed.

        It may arrive after the sender has given up.
        """
        host = self.hosts[receiver]
        lives = sender.lives, host.lives
        state = {"waits": True, "is new": True}

        def arrive() -> None:
            if host.up and state["is new"] and host.lives == lives[1]:
                state["is new"] = False
                self.handled += 1
                send(host, lambda answer: self.network.carry(receiver, sender.domain, lambda: close(answered, answer)))

        def close(work: Callable[[Any], None], value: object) -> None:
            if state["waits"] and sender.up and sender.lives == lives[0]:
                state["waits"] = False
                work(value)

        self.network.carry(sender.domain, receiver, arrive)
        self.later(timeout, lambda: close(failed, f"{receiver} does not respond"))

    def call(
        self, who: str, domain: str, request: Callable[[Host, Reply], None], answered: Reply, timeout: int
    ) -> None:
        """A request of a client. It does not arrive after the client has given up."""
        host, state = self.hosts[domain], {"is new": True, "waits": True}

        def arrive() -> None:
            if host.up and state["is new"] and state["waits"]:
                state["is new"] = False
                self.handled += 1
                request(host, lambda answer: self.network.carry(domain, who, lambda: close(answer)))

        def close(answer: object) -> None:
            if state["waits"]:
                state["waits"] = False
                answered(answer)

        self.network.carry(who, domain, arrive)
        self.later(timeout, lambda: state.update(waits=False))

    def _settle(self) -> None:
        """Stop all faults, and wait until all work is done and has been for a while."""
        self.network.stop_faults()
        for host in self.hosts.values():
            host.disk.full = False
        end, quiet = self.now + _LONGEST_RECOVERY, 0
        while self.now < end and quiet < _QUIET and not self.ledger.violations:
            self._go_to(self.now + _STEP)
            quiet = 0 if any(True for _ in unfinished(self)) else quiet + 1

    def _go_to(self, time: int) -> None:
        left = _MOST_EVENTS
        while left and (event := self.next_until(time)) is not None:
            event()
            left -= 1
        if not left:
            self.ledger.report("never settles: messages keep multiplying")
        self.now = time

    def _enough(self, share: float) -> bool:
        return self.plan.done >= share and len(self.ledger.events) >= share * _EVENTS

    def _act(self, rng: Random) -> None:
        """Generate the events, changes and faults of a tenth of a second."""
        for source in self.sources:
            if source.backlog < 3:
                if rng.random() < 0.12 and source.registered:
                    source.publish()
                elif rng.random() < 0.03:
                    source.move()
                elif rng.random() < 0.01:
                    source.leave_or_return()
        for subscriber in self.subscribers:
            if subscriber.backlog < 3:
                if rng.random() < 0.1 and len(subscriber.subscriptions) < _MOST_SUBSCRIPTIONS:
                    subscriber.subscribe()
                elif rng.random() < 0.04:
                    subscriber.unsubscribe()
                elif rng.random() < 0.06:
                    subscriber.move()
        for visitor in self.visits.clients.values():
            if rng.random() < 0.04:
                visitor.visit(rng.choice(list(self.hosts)))
        if self.visits.visits and rng.random() < 0.1:
            rng.choice((self.visits.forge, self.visits.outdate))(rng)
        if self.plan.advance(self.now):
            self.hosts[rng.choice(list(self.hosts))].crash()
        self._inject_fault(rng, list(self.hosts))

    def _inject_fault(self, rng: Random, domains: list[str]) -> None:
        choice, duration = rng.random(), rng.randrange(*_FAULT_DURATION)
        host = self.hosts[rng.choice(domains)]
        if choice < 0.02:
            other = rng.choice(domains)
            self.network.cut(host.domain, other, duration)
            self.observe(host.domain, f"cut off from {other} for {duration / 1e6:.1f} s")
        elif choice < 0.03:
            self.network.isolate(host.domain, duration)
            self.observe(host.domain, f"cut off for {duration / 1e6:.1f} s")
        elif choice < 0.035:
            host.disk.full = True
            self.later(duration // 4, lambda: setattr(host.disk, "full", False))
            self.observe(host.domain, f"disk full for {duration / 4e6:.1f} s")
