"""A few offices and a network that does exactly what a test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.mailbox import FiledLetter
from roamcast.deliver.messages import OfficeEffect, OfficeInput, PeerMessage, ScheduleWork, Transmit, WorkDue
from roamcast.deliver.office import Office
from roamcast.deliver.port import PendingWork
from roamcast.deliver.requests import Acknowledge, Arrive, Pull, Pulled, Register, SendLetter
from roamcast.store.office.memory import MemoryOfficeStore

T = TypeVar("T")

ANN, BEN, EVE = "north.pier.ann", "south.dock.ben", "west.gate.eve"
DOMAINS = ("north", "south", "west")


class Post:
    """Offices whose messages lie in `wires` until they are carried. Timers ring only when told to."""

    def __init__(self, domains: Iterable[str] = DOMAINS, rules: OfficeLimits | None = None) -> None:
        self.rules = rules or OfficeLimits(bundle_letters=3, chunk_letters=2)
        self.stores = {domain: MemoryOfficeStore() for domain in domains}
        self.offices = {domain: Office(domain, store, self.rules) for domain, store in self.stores.items()}
        self.wires: deque[tuple[str, str, PeerMessage]] = deque()
        self.timers: dict[str, dict[PendingWork, ScheduleWork]] = {domain: {} for domain in self.stores}
        self.dead: set[str] = set()
        self.heard: list[tuple[str, OfficeEffect]] = []
        self.now = 0

    def tell(self, domain: str, message: OfficeInput) -> list[OfficeEffect]:
        """Hand a message to an office; its wires and timers are kept, and all effects returned."""
        effects = self.offices[domain].handle(message, self.now)
        self.take(domain, effects)
        return effects

    def take(self, domain: str, effects: Iterable[OfficeEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Transmit):
                self.wires.append((domain, effect.to, effect.message))
            elif isinstance(effect, ScheduleWork):
                self.timers[domain][effect.work] = effect
            else:
                self.heard.append((domain, effect))

    def carry(self, keep: Callable[[PeerMessage], bool] = lambda _: True) -> None:
        """Carry messages until none is left; those that `keep` is false of, and those to the dead, are lost."""
        while self.wires:
            _, to, message = self.wires.popleft()
            if keep(message) and to not in self.dead:
                self.tell(to, message)

    def only(self, kind: type[T]) -> T:
        """The one message of this kind that is under way."""
        (found,) = [message for _, _, message in self.wires if isinstance(message, kind)]
        return found

    def lose(self) -> None:
        self.wires.clear()

    def ring(self, domain: str) -> None:
        """All timers of an office ring."""
        due, self.timers[domain] = self.timers[domain], {}
        for duty in due:
            self.tell(domain, WorkDue(duty))

    def restart(self, domain: str) -> None:
        """A crash: only the store is left."""
        self.offices[domain] = Office(domain, self.stores[domain], self.rules)
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


def served(post: Post, name: str) -> list[tuple[str, int]]:
    """Where a subscriber is served, and in which epoch."""
    tenures = ((domain, store.tenures([name]).get(name)) for domain, store in post.stores.items())
    return [(domain, tenure.epoch) for domain, tenure in tenures if tenure is not None and tenure.active]


def left(post: Post, name: str) -> list[str]:
    """Where there is a mailbox."""
    return [domain for domain, store in post.stores.items() if store.tenures([name])]
