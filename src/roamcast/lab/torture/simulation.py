"""The simulation: one event queue in total order, with random load and faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from roamcast.deliver.addressing import home_of
from roamcast.deliver.messages import LetterBundle, Transmit
from roamcast.deliver.requests import Arrive, LettersReady, Notice, OfficeRequest, TraceReply
from roamcast.lab.torture.checks import DeliveryChecker
from roamcast.lab.torture.clients import PIPELINE, PipelineClient, SubscriberClient
from roamcast.lab.torture.crashes import CrashPhase, CrashPlan
from roamcast.lab.torture.host import AnswerHandler, Envelope, Host
from roamcast.lab.torture.network import Network, NetworkFaults
from roamcast.lab.torture.timeline import Observer, Timeline
from roamcast.lab.torture.variants import Variant
from roamcast.model import Letter

__all__ = ["CRASHES", "LETTERS", "MIGRATIONS", "TortureSimulation"]

# Minimum of each seed.
LETTERS = 500
MIGRATIONS = 50
CRASHES = 20

_PHASES = 3
_LONGEST_FAULTS = 60_000_000
_LONGEST_RECOVERY = 60_000_000
_STEP = 100_000
_MOST_EVENTS = 200_000
_FAULT_DURATION = 200_000, 2_500_000
_HOUR = 3_600_000_000


class TortureSimulation(Timeline):
    """Deterministic: everything follows from the seed and the variant."""

    def __init__(self, seed: int, variant: Variant, observer: Observer | None = None) -> None:
        super().__init__(observer)
        self.variant = variant
        self.checker = DeliveryChecker()
        self._events_left = _MOST_EVENTS
        self._rng = rng = Random(seed)  # noqa: S311  # not for security
        self._faults = NetworkFaults(rng.uniform(0.02, 0.15), rng.uniform(0.02, 0.15), rng.uniform(0.02, 0.1))
        self.network = Network(rng, self.later, self._faults)
        self.plan = CrashPlan(seed, rng)
        self.hosts = {f"d{at}": Host(f"d{at}", self, rng) for at in range(rng.randrange(3, 6))}
        self.subscribers: dict[str, SubscriberClient] = {}
        for at in range(rng.randrange(7, 12)):
            domain = rng.choice(list(self.hosts))
            name = f"{domain}.h{at % 2}.s{at}"
            self.subscribers[name] = SubscriberClient(name, domain, self, rng)
        self.pipeline = PipelineClient(self, rng)

    @property
    def handled(self) -> int:
        """Messages handled by all offices."""
        return sum(host.handled for host in self.hosts.values())

    @property
    def crashes(self) -> int:
        return sum(host.crashes for host in self.hosts.values())

    @property
    def violations(self) -> list[str]:
        return self.checker.violations

    @property
    def counts(self) -> dict[str, int]:
        checker = self.checker
        return {
            "letters": checker.letters,
            "expired": checker.expired,
            "migrations": checker.migrations,
            "crashes": self.crashes,
            "messages": self.handled,
        }

    def run(self) -> None:
        """Run phases with faults until there was enough of everything. Let all work finish after each phase."""
        for phase in range(1, _PHASES + 1):
            self.network.faults = self._faults
            end = self.now + _LONGEST_FAULTS
            while not self._enough(phase / _PHASES) and self.now < end and not self.checker.violations:
                self._act()
                self._go_to(self.now + _STEP)
            self._stop_faults()
            self._settle()
            for subscriber in self.subscribers.values():
                subscriber.trace(self.checker.any_letter(self._rng))
            self._settle()
            if self.checker.violations:
                return
            self.checker.check_end(self)

    def crashes_at(self, kinds: Sequence[str], phase: CrashPhase) -> bool:
        return self.plan.crashes_at(kinds, phase, self.now)

    def transmit(self, source: str, effect: Transmit, envelope: Envelope) -> None:
        """Send a message from one office to another, unless it would be refused there."""
        target, message = self.hosts[effect.to], effect.message
        if isinstance(message, LetterBundle) and not self.variant.may_post(source, message):
            return
        self.network.carry(source, effect.to, lambda: target.receive(message, envelope))

    def notify(self, source: str, notice: Notice) -> None:
        """Send a notice from an office to the subscribers concerned."""
        match notice:
            case LettersReady(names):
                concerned = names
            case TraceReply(ticket):
                concerned = (ticket.split()[0],)
            case _:
                concerned = (notice.name,)
        for name in concerned:
            self._notify(source, self.subscribers[name], notice)

    def _notify(self, source: str, subscriber: SubscriberClient, notice: Notice) -> None:
        self.network.carry(source, subscriber.name, lambda: subscriber.notice(source, notice))

    def request(self, who: str, office: str, request: OfficeRequest, answer: AnswerHandler) -> None:
        """Send a request to an office. The answer returns over the same kind of network."""
        envelope = Envelope(lambda reply: self.network.carry(office, who, lambda: answer(reply)))
        host = self.hosts[office]
        self.network.carry(who, office, lambda: host.receive(request, envelope))

    def unsettled(self) -> Iterator[str]:
        """What remains to be done."""
        for domain, host in self.hosts.items():
            if not host.up:
                yield f"{domain} is down"
            yield from (f"{domain} has pending work: {kind} for {name}" for kind, name in host.disk.pending_work())
            loads = host.disk.loads(host.disk.all_tenures())
            yield from (f"{domain} has letters for {name}" for name, load in loads.items() if any(load))
        for name, subscriber in self.subscribers.items():
            if not subscriber.idle or subscriber.open_traces:
                yield f"{name} has unfinished requests"
            tenure = self.hosts[subscriber.at].disk.all_tenures().get(name)
            if tenure is None or not tenure.active:
                yield f"{name} does not know yet that its mailbox is not at {subscriber.at}"
        if not self.pipeline.idle:
            yield "the pipeline has undeposited letters"
        if self.network.late:
            yield "messages are in flight"

    def _go_to(self, time: int) -> None:
        while (event := self.next_until(time)) is not None:
            event()
            self._events_left -= 1
        if self._events_left < 0:
            self.checker.too_many_messages()
        self.now = time

    def _enough(self, share: float) -> bool:
        checker = self.checker
        counts = (checker.letters, LETTERS), (checker.migrations, MIGRATIONS), (self.crashes, CRASHES)
        return self.plan.done >= share and all(count >= share * least for count, least in counts)

    def _act(self) -> None:
        """Generate the letters, moves and faults of a tenth of a second."""
        rng = self._rng
        names, domains = list(self.subscribers), list(self.hosts)
        for _ in range(rng.randrange(4)):
            receiver = rng.choice(names)
            if rng.random() < 0.3:
                self.pipeline.publish([receiver, *rng.sample(names, rng.randrange(3))], self.ticket())
            else:
                ttl = rng.randrange(200_000, 5_000_000) if rng.random() < 0.1 else None
                self.subscribers[rng.choice(names)].write(receiver, self.ticket(), ttl)
        if rng.random() < 0.4:
            subscriber = self.subscribers[rng.choice(names)]
            subscriber.move(rng.choice([*domains, subscriber.at, subscriber.at]))  # often where it is: it arrives again
            if rng.random() < 0.4:  # it moves again at once
                self.later(rng.randrange(400_000), lambda: subscriber.move(rng.choice(domains)))
        if rng.random() < 0.02:
            name = rng.choice(names)  # a second client with its token arrives elsewhere and disappears
            self.request(name, rng.choice(domains), Arrive(name), lambda _: None)
        if rng.random() < 0.1 and self.checker.letters:
            self.subscribers[rng.choice(names)].trace(self.checker.any_letter(rng))
        if rng.random() < 0.05:
            self._forge(rng, rng.choice(names), rng.choice(domains))
        if self.plan.advance(self.now):
            host = self.hosts[rng.choice(domains)]
            host.start()
            host.crash()
        self._inject_fault(rng, domains)

    def _forge(self, rng: Random, receiver: str, office: str) -> None:
        """An office posts a letter in the name of the pipeline, or claims to forward one of the receiver's home."""
        home, to = home_of(receiver), self.subscribers[receiver].at
        if office in (home, to):
            return
        letter = Letter(receiver, PIPELINE, self.pipeline.next_number(receiver), "forged")
        bundle = LetterBundle(receiver, (letter,), rng.choice((office, home)), 0)
        self.transmit(office, Transmit(to, bundle), Envelope())

    def _inject_fault(self, rng: Random, domains: list[str]) -> None:
        choice = rng.random()
        duration = rng.randrange(*_FAULT_DURATION)
        host = self.hosts[rng.choice(domains)]
        if choice < 0.02:
            other = rng.choice(domains)
            self.network.cut(host.domain, other, duration)
            self.observe(host.domain, f"cut off from {other} for {duration / 1e6:.1f} s")
        elif choice < 0.03:
            self.network.isolate(host.domain, duration)
            self.observe(host.domain, f"cut off for {duration / 1e6:.1f} s")
        elif choice < 0.05:
            host.disk.full = True
            self.later(duration, lambda: setattr(host.disk, "full", False))
            self.observe(host.domain, f"disk full for {duration / 1e6:.1f} s")
        elif choice < 0.08:
            jump = rng.randrange(-_HOUR, _HOUR)
            host.clock_offset += jump
            self.observe(host.domain, f"clock jumps by {jump / 1e6:.0f} s")

    def _stop_faults(self) -> None:
        self.network.stop_faults()
        for host in self.hosts.values():
            host.disk.full = False

    def _settle(self) -> None:
        end = self.now + _LONGEST_RECOVERY
        while self.now < end and not self.checker.violations and any(True for _ in self.unsettled()):
            self._go_to(self.now + _STEP)
