"""Runs the real protocol over a simulated network and counts the cost of letters and migrations."""

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
from roamcast.lab.experiments.postoffice.model import Costs
from roamcast.lab.models.office_store import MemoryOfficeStore

__all__ = ["CountingNetwork", "LetterCost", "MigrationCost"]

_MOST = 1_000


@dataclass(frozen=True, slots=True)
class LetterCost:
    """The cost of one letter: `time` and `traffic` as the paper counts them, then the complete cost.

    The paper counts the transfers of the letter and the queries that find and fetch it. It does not count receipts,
    the bookkeeping that moves with a mailbox, and the time of the claim for a mailbox.
    """

    time: float
    traffic: float
    elapsed: float
    everything: float


@dataclass(frozen=True, slots=True)
class MigrationCost:
    """Messages of one migration: deregistration and address updates as in the paper, then all messages."""

    messages: int
    everything: int


class CountingNetwork:
    """Offices on a network with delays but without losses, so nothing is repeated."""

    def __init__(self, domains: Iterable[str], costs: Costs) -> None:
        self._costs = costs
        self._offices = {domain: Office(domain, MemoryOfficeStore()) for domain in domains}
        self._locations: dict[str, tuple[str, int]] = {}
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._transmitted: list[PeerMessage] = []
        self._count = 0
        self._ready_at = 0.0

    def create(self, name: str, at: str | None = None) -> None:
        """Register a subscriber at its home; then move it to `at`."""
        home = name.split(".")[0]
        self._locations[name] = home, 1
        self._handle(home, Register(name))
        if at is not None:
            self.migrate(name, at)

    def migrate(self, name: str, to: str) -> MigrationCost:
        """A subscriber that knows its previous office and epoch arrives."""
        previous, epoch = self._locations[name]
        self._locations[name] = to, epoch + 1
        self._transmitted.clear()
        self._handle(to, Arrive(name, epoch + 1, previous))
        self._run()
        counted = sum(isinstance(message, MailboxClaim | AddressUpdate) for message in self._transmitted)
        return MigrationCost(counted, len(self._transmitted))

    def write(self, sender: str, receiver: str, *, moves_to: str | None = None) -> LetterCost:
        """Send one letter and read it as soon as possible.

        With `moves_to` the receiver arrives there when the letter has reached its previous office.
        """
        self._transmitted.clear()
        posted = self._now
        self._handle(self._locations[sender][0], SendLetter(sender, receiver, ""))
        self._run()
        away = self._ready_at
        if moves_to is not None:
            previous, epoch = self._locations[receiver]
            self._locations[receiver] = moves_to, epoch + 1
            self._now = away
            self._handle(moves_to, Arrive(receiver, epoch + 1, previous))
            self._run()
        self._read(receiver)
        return self._cost(receiver, self._ready_at - posted)

    def _read(self, receiver: str) -> None:
        office = self._offices[self._locations[receiver][0]]
        (pulled,) = office.handle(Pull(receiver, _MOST), 0)
        if isinstance(pulled, Pulled):
            office.handle(Acknowledge(receiver, pulled.letters[-1].offset or 0), 0)

    def _cost(self, receiver: str, elapsed: float) -> LetterCost:
        """The messages of a migration are counted separately."""
        costs = self._costs
        fetched = costs.ctl + costs.mail
        way = everything = 0.0
        for message in self._transmitted:
            if isinstance(message, LetterBundle | LocationQuery | LocationReply):
                way += self._size(message)
            elif isinstance(message, MailboxChunk):
                way += costs.mail * len(message.letters)
            if not (
                isinstance(message, MailboxClaim | AddressUpdate | AddressUpdateReceipt) and message.name == receiver
            ):
                everything += self._size(message)
        acknowledgement = costs.ctl
        return LetterCost(
            way / costs.inter + costs.t_intra,
            way + fetched,
            elapsed + costs.t_intra,
            everything + fetched + acknowledgement,
        )

    def _size(self, message: PeerMessage) -> float:
        """Letters have the size of a mail; everything else is a control message, including bookkeeping."""
        if isinstance(message, LetterBundle):
            return self._costs.mail * len(message.letters)
        if isinstance(message, MailboxChunk):
            return self._costs.mail * len(message.letters) + self._costs.ctl * (message.bookkeeping is not None)
        return self._costs.ctl

    def _handle(self, domain: str, message: OfficeInput) -> None:
        for effect in self._offices[domain].handle(message, 0):
            if isinstance(effect, Transmit):
                self._transmit(effect)
            elif isinstance(effect, LettersReady | Arrived):
                self._ready_at = self._now

    def _transmit(self, effect: Transmit) -> None:
        self._transmitted.append(effect.message)
        self._count += 1
        arrival = self._now + self._size(effect.message) / self._costs.inter
        heapq.heappush(self._events, (arrival, self._count, lambda: self._handle(effect.to, effect.message)))

    def _run(self) -> None:
        while self._events:
            self._now, _, event = heapq.heappop(self._events)
            event()
