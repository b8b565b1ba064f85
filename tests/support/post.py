"""Offices with a network that tests control message by message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import OfficeEffect, OfficeInput, PeerMessage, ScheduleWork, Transmit, WorkDue
from roamcast.deliver.office import Office
from roamcast.deliver.port import FiledLetter, PendingWork
from roamcast.deliver.requests import Acknowledge, Arrive, Pull, Pulled, Register, SendLetter
from roamcast.lab.models.office_store import MemoryOfficeStore

T = TypeVar("T")

ANN, BEN, EVE = "north.pier.ann", "south.dock.ben", "west.gate.eve"
DOMAINS = ("north", "south", "west")


class PostNetwork:
    """Offices whose messages stay in `in_flight` until they are carried. Timers fire only on request."""

    def __init__(self, domains: Iterable[str] = DOMAINS, limits: OfficeLimits | None = None) -> None:
        self.limits = limits or OfficeLimits(bundle_letters=3, chunk_letters=2)
        self.stores = {domain: MemoryOfficeStore() for domain in domains}
        self.offices = {domain: Office(domain, store, self.limits) for domain, store in self.stores.items()}
        self.in_flight: deque[tuple[str, str, PeerMessage]] = deque()
        self.timers: dict[str, dict[PendingWork, ScheduleWork]] = {domain: {} for domain in self.stores}
        self.dead: set[str] = set()
        self.emitted: list[tuple[str, OfficeEffect]] = []
        self.now = 0

    def tell(self, domain: str, message: OfficeInput) -> list[OfficeEffect]:
        """Pass a message to an office and return its effects. Its messages and timers are recorded."""
        effects = self.offices[domain].handle(message, self.now)
        self.take(domain, effects)
        return effects

    def take(self, domain: str, effects: Iterable[OfficeEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Transmit):
                self.in_flight.append((domain, effect.to, effect.message))
            elif isinstance(effect, ScheduleWork):
                self.timers[domain][effect.work] = effect
            else:
                self.emitted.append((domain, effect))

    def carry(self, keep: Callable[[PeerMessage], bool] = lambda _: True) -> None:
        """Deliver messages until none is left. Those that `keep` rejects, and those to dead offices, are lost."""
        while self.in_flight:
            _, to, message = self.in_flight.popleft()
            if keep(message) and to not in self.dead:
                self.tell(to, message)

    def only(self, kind: type[T]) -> T:
        """The only message of this kind in flight."""
        (found,) = [message for _, _, message in self.in_flight if isinstance(message, kind)]
        return found

    def lose(self) -> None:
        self.in_flight.clear()

    def ring(self, domain: str) -> None:
        """Fire all timers of an office."""
        due, self.timers[domain] = self.timers[domain], {}
        for work in due:
            self.tell(domain, WorkDue(work))

    def restart(self, domain: str) -> None:
        """Crash an office: only its store survives."""
        self.offices[domain] = Office(domain, self.stores[domain], self.limits)
        self.timers[domain] = {}
        self.take(domain, self.offices[domain].recover())

    # What subscribers do.

    def register(self, *names: str) -> None:
        for name in names:
            self.tell(name.split(".")[0], Register(name))

    def send(self, domain: str, sender: str, receiver: str, *bodies: str) -> None:
        for body in bodies:
            self.tell(domain, SendLetter(sender, receiver, body))

    def arrive(self, domain: str, name: str, epoch: int | None = None, previous: str | None = None) -> None:
        self.tell(domain, Arrive(name, epoch, previous))

    def pull(self, domain: str, name: str, after: int = 0, limit: int = 100) -> list[FiledLetter]:
        (pulled,) = self.tell(domain, Pull(name, limit, after))
        assert isinstance(pulled, Pulled)
        return list(pulled.letters)

    def bodies(self, domain: str, name: str) -> list[str]:
        return [filed.letter.body for filed in self.pull(domain, name)]

    def acknowledge(self, domain: str, name: str, through: int) -> None:
        self.tell(domain, Acknowledge(name, through))


def served(post: PostNetwork, name: str) -> list[tuple[str, int]]:
    """Where a subscriber is served, and in which epoch."""
    tenures = ((domain, store.tenures([name]).get(name)) for domain, store in post.stores.items())
    return [(domain, tenure.epoch) for domain, tenure in tenures if tenure is not None and tenure.active]


def holders(post: PostNetwork, name: str) -> list[str]:
    """The domains that have a mailbox of a subscriber."""
    return [domain for domain, store in post.stores.items() if store.tenures([name])]
