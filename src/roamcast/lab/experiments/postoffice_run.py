"""The protocol as it runs, over a simulated network that counts: what a letter costs, and what a migration costs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from roamcast.deliver.messages import (
    AddressUpdate,
    AddressUpdateReceipt,
    LetterBundle,
    LocationQuery,
    LocationReply,
    MailboxChunk,
    MailboxClaim,
    OfficeInput,
    PeerMessage,
    Transmit,
)
from roamcast.deliver.office import Office
from roamcast.deliver.requests import Acknowledge, Arrive, Arrived, LettersReady, Pull, Pulled, Register, SendLetter
from roamcast.lab.experiments.postoffice_model import Costs
from roamcast.store.office.memory import MemoryOfficeStore

__all__ = ["Bill", "Migration", "Town"]

_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Bill:
    """What one letter took: `time` and `traffic` as the paper counts, and then all that there was.

    The paper counts the letter on its way, and the questions that find and fetch it. It does not count the answers that
    make delivery certain, what a mailbox knows and takes with it, and, with its time, that of the claim for a mailbox.
    """

    time: float
    traffic: float
    elapsed: float
    everything: float


@dataclass(frozen=True, slots=True)
class Migration:
    """How many messages one migration took: deregistration and address updates, and then all."""

    messages: int
    everything: int


class Town:
    """Offices with nothing but time between them. Nothing is lost, so nothing is repeated."""

    def __init__(self, domains: Iterable[str], costs: Costs) -> None:
        self._costs = costs
        self._offices = {domain: Office(domain, MemoryOfficeStore()) for domain in domains}
        self._places: dict[str, tuple[str, int]] = {}
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._carried: list[PeerMessage] = []
        self._count = 0
        self._woken = 0.0

    def create(self, name: str, at: str | None = None) -> None:
        """Registered at home, then gone elsewhere."""
        home = name.split(".")[0]
        self._places[name] = home, 1
        self._tell(home, Register(name))
        if at is not None:
            self.migrate(name, at)

    def migrate(self, name: str, to: str) -> Migration:
        """A subscriber arrives; it knows where it was, and in which epoch."""
        previous, epoch = self._places[name]
        self._places[name] = to, epoch + 1
        self._carried.clear()
        self._tell(to, Arrive(name, epoch + 1, previous))
        self._run()
        counted = sum(isinstance(message, MailboxClaim | AddressUpdate) for message in self._carried)
        return Migration(counted, len(self._carried))

    def write(self, sender: str, receiver: str, *, moves_to: str | None = None) -> Bill:
        """One letter, read as soon as it can be. Who moves arrives elsewhere when the letter is where it was before."""
        self._carried.clear()
        posted = self._now
        self._tell(self._places[sender][0], SendLetter(sender, receiver, ""))
        self._run()
        away = self._woken
        if moves_to is not None:
            previous, epoch = self._places[receiver]
            self._places[receiver] = moves_to, epoch + 1
            self._now = away
            self._tell(moves_to, Arrive(receiver, epoch + 1, previous))
            self._run()
        self._read(receiver)
        return self._bill(receiver, self._woken - posted)

    def _read(self, receiver: str) -> None:
        office = self._offices[self._places[receiver][0]]
        (pulled,) = office.handle(Pull(receiver, _MOST), 0)
        if isinstance(pulled, Pulled):
            office.handle(Acknowledge(receiver, pulled.letters[-1].offset or 0), 0)

    def _bill(self, receiver: str, elapsed: float) -> Bill:
        """Messages of the migration itself are on its own bill."""
        costs = self._costs
        fetched = costs.ctl + costs.mail
        way = everything = 0.0
        for message in self._carried:
            if isinstance(message, LetterBundle | LocationQuery | LocationReply):
                way += self._size(message)
            elif isinstance(message, MailboxChunk):
                way += costs.mail * len(message.letters)
            if not (
                isinstance(message, MailboxClaim | AddressUpdate | AddressUpdateReceipt) and message.name == receiver
            ):
                everything += self._size(message)
        acknowledgement = costs.ctl
        return Bill(
            way / costs.inter + costs.t_intra,
            way + fetched,
            elapsed + costs.t_intra,
            everything + fetched + acknowledgement,
        )

    def _size(self, message: PeerMessage) -> float:
        """Letters are large; everything else is a control message, also what a mailbox knows."""
        if isinstance(message, LetterBundle):
            return self._costs.mail * len(message.letters)
        if isinstance(message, MailboxChunk):
            return self._costs.mail * len(message.letters) + self._costs.ctl * (message.bookkeeping is not None)
        return self._costs.ctl

    def _tell(self, domain: str, message: OfficeInput) -> None:
        for effect in self._offices[domain].handle(message, 0):
            if isinstance(effect, Transmit):
                self._transmit(effect)
            elif isinstance(effect, LettersReady | Arrived):
                self._woken = self._now

    def _transmit(self, effect: Transmit) -> None:
        self._carried.append(effect.message)
        self._count += 1
        arrival = self._now + self._size(effect.message) / self._costs.inter
        heapq.heappush(self._events, (arrival, self._count, lambda: self._tell(effect.to, effect.message)))

    def _run(self) -> None:
        while self._events:
            self._now, _, event = heapq.heappop(self._events)
            event()
