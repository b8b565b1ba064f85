"""The simulated world: one queue of events in total order, and everything that goes wrong in it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from random import Random

from roamcast.deliver.messages import Arrive, News, Request, Traced, Transmit
from roamcast.lab.torture.checks import Ledger
from roamcast.lab.torture.clients import Pipeline, Subscriber
from roamcast.lab.torture.crashes import CrashPlan, Phase
from roamcast.lab.torture.host import Answer, Letterhead, Station
from roamcast.lab.torture.network import Network, Weather
from roamcast.lab.torture.variants import Variant

__all__ = ["CRASHES", "LETTERS", "MIGRATIONS", "World"]

# Of each seed, at least.
LETTERS = 500
MIGRATIONS = 50
CRASHES = 20

_STORMS = 3
_LONGEST_STORM = 60_000_000
_LONGEST_CALM = 60_000_000
_STEP = 100_000
_MOST_EVENTS = 200_000
_SPELL = 200_000, 2_500_000
_HOUR = 3_600_000_000

Teller = Callable[[int, str, object], None]


class World:
    """Everything that happens follows from the seed and the variant."""

    def __init__(self, seed: int, variant: Variant, teller: Teller | None = None) -> None:
        self.now = 0
        self.variant = variant
        self.ledger = Ledger()
        self._teller = teller
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._tickets = 0
        self._events_left = _MOST_EVENTS
        self._rng = rng = Random(seed)  # noqa: S311  # chance in a simulation, no secret
        self._weather = Weather(rng.uniform(0.02, 0.15), rng.uniform(0.02, 0.15), rng.uniform(0.02, 0.1))
        self.network = Network(rng, self.later, self._weather)
        self.plan = CrashPlan(seed, rng)
        self.stations = {f"d{at}": Station(f"d{at}", self, rng) for at in range(rng.randrange(3, 6))}
        self.people: dict[str, Subscriber] = {}
        for at in range(rng.randrange(7, 12)):
            domain = rng.choice(list(self.stations))
            name = f"{domain}.h{at % 2}.s{at}"
            self.people[name] = Subscriber(name, domain, self, rng)
        self.pipeline = Pipeline(self, rng)

    @property
    def handled(self) -> int:
        """How many messages the offices have handled."""
        return sum(station.handled for station in self.stations.values())

    @property
    def crashes(self) -> int:
        return sum(station.crashes for station in self.stations.values())

    def run(self) -> None:
        """Storms, until there were enough letters, migrations and crashes; after each a calm until all is done."""
        for storm in range(1, _STORMS + 1):
            self.network.weather = self._weather
            end = self.now + _LONGEST_STORM
            while not self._enough(storm / _STORMS) and self.now < end and not self.ledger.violations:
                self._stir()
                self._go_to(self.now + _STEP)
            self._becalm()
            self._settle()
            for person in self.people.values():
                person.inquire(self.ledger.any_letter(self._rng))
            self._settle()
            if self.ledger.violations:
                return
            self.ledger.close(self)

    def later(self, delay: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, self.ticket(), event))

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def note(self, who: str, what: object) -> None:
        if self._teller is not None:
            self._teller(self.now, who, what)

    def strikes(self, kinds: Sequence[str], phase: Phase) -> bool:
        return self.plan.strikes(kinds, phase, self.now)

    def transmit(self, source: str, effect: Transmit, head: Letterhead) -> None:
        """From office to office."""
        target, message = self.stations[effect.to], effect.message
        self.network.carry(source, effect.to, lambda: target.receive(message, head))

    def tell(self, source: str, news: News) -> None:
        """From an office to whoever it concerns."""
        person = self.people[news.ticket.split()[0] if isinstance(news, Traced) else news.name]
        self.network.carry(source, person.name, lambda: person.hear(source, news))

    def ask(self, who: str, office: str, request: Request, answer: Answer) -> None:
        """From somebody to an office; the answer takes the same kind of way back."""
        head = Letterhead(lambda reply: self.network.carry(office, who, lambda: answer(reply)))
        station = self.stations[office]
        self.network.carry(who, office, lambda: station.receive(request, head))

    def unsettled(self) -> Iterator[str]:
        """What is still to be done."""
        for domain, station in self.stations.items():
            if not station.up:
                yield f"{domain} is down"
            yield from (f"{domain} has to {kind} for {name}" for kind, name in station.disk.duties())
            loads = station.disk.loads(station.disk.all_tenures())
            yield from (f"{domain} has letters for {name}" for name, load in loads.items() if any(load))
        for name, person in self.people.items():
            if not person.content or person.questions:
                yield f"{name} is not content"
            tenure = self.stations[person.at].disk.all_tenures().get(name)
            if tenure is None or not tenure.active:
                yield f"{name} has to find out that its mailbox is not at {person.at}"
        if not self.pipeline.content:
            yield "the pipeline has letters left"
        if self.network.late:
            yield "messages are under way"

    def _go_to(self, time: int) -> None:
        events = self._events
        while events and events[0][0] <= time:
            self.now, _, event = heapq.heappop(events)
            event()
            self._events_left -= 1
        if self._events_left < 0:
            self.ledger.flood()
        self.now = time

    def _enough(self, share: float) -> bool:
        ledger = self.ledger
        counts = (ledger.letters, LETTERS), (ledger.migrations, MIGRATIONS), (self.crashes, CRASHES)
        return self.plan.done >= share and all(count >= share * least for count, least in counts)

    def _stir(self) -> None:
        """A tenth of a second's worth of letters, moves and trouble."""
        rng = self._rng
        names, domains = list(self.people), list(self.stations)
        for _ in range(rng.randrange(4)):
            receiver = rng.choice(names)
            if rng.random() < 0.3:
                office = self.people[receiver].at if rng.random() < 0.5 else rng.choice(domains)
                self.pipeline.publish(office, [receiver, *rng.sample(names, rng.randrange(3))], self.ticket())
            else:
                ttl = rng.randrange(200_000, 5_000_000) if rng.random() < 0.1 else None
                self.people[rng.choice(names)].write(receiver, self.ticket(), ttl)
        if rng.random() < 0.4:
            person = self.people[rng.choice(names)]
            person.move(rng.choice([*domains, person.at, person.at]))  # where it is, it arrives again
            if rng.random() < 0.4:  # it changes its mind on the way
                self.later(rng.randrange(400_000), lambda: person.move(rng.choice(domains)))
        if rng.random() < 0.02:
            somebody = rng.choice(names)  # or who has its token, arrives elsewhere and is never seen again
            self.ask(somebody, rng.choice(domains), Arrive(somebody), lambda _: None)
        if rng.random() < 0.1 and self.ledger.letters:
            self.people[rng.choice(names)].inquire(self.ledger.any_letter(rng))
        if self.plan.go_on(self.now):
            station = self.stations[rng.choice(domains)]
            station.start()
            station.crash()
        self._trouble(rng, domains)

    def _trouble(self, rng: Random, domains: list[str]) -> None:
        what = rng.random()
        spell = rng.randrange(*_SPELL)
        station = self.stations[rng.choice(domains)]
        if what < 0.02:
            other = rng.choice(domains)
            self.network.cut(station.domain, other, spell)
            self.note(station.domain, f"cut off from {other} for {spell / 1e6:.1f} s")
        elif what < 0.03:
            self.network.isolate(station.domain, spell)
            self.note(station.domain, f"cut off for {spell / 1e6:.1f} s")
        elif what < 0.05:
            station.disk.full = True
            self.later(spell, lambda: setattr(station.disk, "full", False))
            self.note(station.domain, f"disk full for {spell / 1e6:.1f} s")
        elif what < 0.08:
            jump = rng.randrange(-_HOUR, _HOUR)
            station.offset += jump
            self.note(station.domain, f"clock jumps by {jump / 1e6:.0f} s")

    def _becalm(self) -> None:
        self.network.calm()
        for station in self.stations.values():
            station.disk.full = False

    def _settle(self) -> None:
        end = self.now + _LONGEST_CALM
        while self.now < end and not self.ledger.violations and any(True for _ in self.unsettled()):
            self._go_to(self.now + _STEP)
