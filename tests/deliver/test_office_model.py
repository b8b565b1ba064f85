"""One office with random input behaves like a simple model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from profiles import thorough

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import (
    AddressUpdate,
    BundleReceipt,
    ChunkReceipt,
    LetterBundle,
    LocationReply,
    MailboxChunk,
    MailboxClaim,
    OfficeEffect,
    OfficeInput,
    ScheduleWork,
    Transmit,
    WorkDue,
)
from roamcast.deliver.office import Office
from roamcast.deliver.port import START, Bookkeeping, FiledLetter, LetterKey
from roamcast.deliver.requests import Acknowledge, Arrive, Arrived, Pull, Pulled, Register
from roamcast.errors import ElsewhereError
from roamcast.lab.models.office_store import MemoryOfficeStore
from roamcast.model import Letter

HERE, PEERS = "north", ("south", "west")
ANN = "north.pier.ann"
SENDERS = ("p", "q")

keys = st.tuples(st.sampled_from(SENDERS), st.integers(1, 7))
peers = st.sampled_from(PEERS)
epochs = st.integers(1, 12)


@dataclass
class Model:
    """All letters accepted, in reading order as far as known, and the office and epoch of the mailbox.

    Beyond `past_epoch` the location is only reported. `asked_offices` are those the mailbox was claimed from.
    """

    office: str = HERE
    epoch: int = 1
    received: set[tuple[str, int]] = field(default_factory=set)
    readable: list[tuple[str, int]] = field(default_factory=list)
    acknowledged: int = 0
    claimed: int | None = None
    leaving: bool = False
    past_epoch: int = 1
    asked_offices: set[str] = field(default_factory=set)

    def take(self, keys: list[tuple[str, int]]) -> None:
        for key in keys:
            if key in self.received:
                continue
            self.received.add(key)
            sender, _ = key
            following = sum(who == sender for who, _ in self.readable) + 1
            while (sender, following) in self.received:
                self.readable.append((sender, following))
                following += 1


class OfficeMachine(RuleBasedStateMachine):
    """Peers act randomly. The model keeps a mailbox that left, to hand it back."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryOfficeStore()
        self.model = Model()
        self.away: tuple[Bookkeeping, tuple[FiledLetter, ...]] | None = None

    @initialize()
    def begin(self) -> None:
        self.office = Office(HERE, self.store, OfficeLimits(chunk_letters=100))
        assert self.tell(Register(ANN)) == [Arrived(ANN, 1)]

    def tell(self, message: OfficeInput) -> list[OfficeEffect]:
        return self.office.handle(message, 0)

    def messages(self, message: OfficeInput) -> list[tuple[str, object]]:
        return [(effect.to, effect.message) for effect in self.tell(message) if isinstance(effect, Transmit)]

    @rule(keys=st.lists(keys, min_size=1, max_size=6), origin=peers, known_epoch=epochs)
    def post(self, keys: list[tuple[str, int]], origin: str, known_epoch: int) -> None:
        """Filed and confirmed, forwarded to a later epoch than the sender knows, or ignored."""
        letters = tuple(Letter(ANN, sender, number, f"{sender}{number}") for sender, number in keys)
        messages = self.messages(LetterBundle(ANN, letters, origin, known_epoch))
        if self.model.office == HERE:
            self.model.take(keys)
            ((to, receipt),) = messages
            assert isinstance(receipt, BundleReceipt)
            assert (to, list(receipt.accepted), receipt.rejected) == (origin, keys, ())
        elif self.model.epoch > known_epoch:
            assert messages == [(self.model.office, LetterBundle(ANN, letters, origin, self.model.epoch))]
        else:
            assert messages == []

    @rule(limit=st.integers(1, 20), after=st.integers(0, 20))
    def pull(self, limit: int, after: int) -> None:
        if self.model.office != HERE:
            with pytest.raises(ElsewhereError) as caught:
                self.tell(Pull(ANN, limit, after))
            assert (caught.value.office, caught.value.epoch) == (self.model.office, self.model.epoch)
            return
        start = max(after, self.model.acknowledged)
        expected = [(offset, *key) for offset, key in enumerate(self.model.readable, 1) if offset > start][:limit]
        (pulled,) = self.tell(Pull(ANN, limit, after))
        assert isinstance(pulled, Pulled)
        assert [(offset, letter.sender, letter.number) for letter, offset in pulled.letters] == expected

    @rule(through=st.integers(1, 20))
    def acknowledge(self, through: int) -> None:
        if self.model.office == HERE and through <= len(self.model.readable):
            self.tell(Acknowledge(ANN, through))
            self.model.acknowledged = max(self.model.acknowledged, through)

    @rule(epoch=epochs, peer=peers)
    def claim(self, epoch: int, peer: str) -> None:
        """Granted to a later epoch with everything in one chunk; otherwise answered with the location."""
        messages = self.messages(MailboxClaim(ANN, epoch, peer, ""))
        model = self.model
        if model.office == HERE and epoch > model.epoch:
            model.office, model.epoch, model.leaving = peer, epoch, True
            model.past_epoch = epoch
            ((to, chunk),) = messages
            assert isinstance(chunk, MailboxChunk)
            assert chunk.bookkeeping is not None
            assert (to, chunk.epoch, chunk.last) == (peer, epoch, True)
            self.away = chunk.bookkeeping, chunk.letters
        elif model.leaving and (model.office, model.epoch) == (peer, epoch):
            assert [(to, type(message)) for to, message in messages] == [(peer, MailboxChunk)]
        else:
            assert messages == [(peer, LocationReply(ANN, model.office, model.epoch))]

    @rule()
    def confirm_chunk(self) -> None:
        """The other side confirms that it has everything."""
        self.tell(ChunkReceipt(ANN, self.model.epoch, START, complete=True))
        self.model.leaving = False

    @rule(epoch=epochs)
    def arrive(self, epoch: int) -> None:
        """Here in a later epoch; claimed from where it is; or too late."""
        model = self.model
        late = epoch < model.epoch or (model.office != HERE and epoch == model.epoch)
        if late or epoch < (model.claimed or 0):
            with pytest.raises(ElsewhereError):
                self.tell(Arrive(ANN, epoch))
        elif model.office == HERE:
            assert Arrived(ANN, epoch) in self.tell(Arrive(ANN, epoch))
            model.epoch = model.past_epoch = epoch
        else:
            if model.claimed is None:
                model.asked_offices.clear()
            model.asked_offices.add(model.office)
            assert self.messages(Arrive(ANN, epoch)) == [(model.office, MailboxClaim(ANN, epoch, HERE, ""))]
            model.claimed = epoch

    @rule(epoch=epochs)
    def hand_back(self, epoch: int) -> None:
        """A chunk of a later epoch is accepted if it was claimed; one of an earlier epoch is late."""
        model = self.model
        bookkeeping, letters = self.away or (Bookkeeping(), ())
        peer = PEERS[0] if model.office == HERE else model.office
        messages = self.messages(MailboxChunk(ANN, epoch, peer, START, letters, True, bookkeeping))
        if epoch <= model.past_epoch:
            assert messages == [(peer, ChunkReceipt(ANN, epoch, START, complete=True))]
        elif model.office == HERE or model.claimed is None or peer not in model.asked_offices:
            assert messages == []
        else:
            assert messages == [(peer, ChunkReceipt(ANN, epoch, START, complete=True))]
            model.office, model.epoch, model.claimed = HERE, max(epoch, model.claimed), None
            model.leaving, model.past_epoch = False, model.epoch

    @rule(office=peers, ahead=st.integers(1, 3))
    def learn_location(self, office: str, ahead: int) -> None:
        """While it is claimed, the reply of the office that has it counts."""
        model = self.model
        if model.claimed is None or model.leaving:
            return
        self.tell(AddressUpdate(ANN, office, model.epoch + ahead, False))
        model.office, model.epoch = office, model.epoch + ahead

    @rule(office=peers, ahead=st.integers(0, 3))
    def learn_that_it_is_too_late(self, office: str, ahead: int) -> None:
        """A later epoch ends a claim. The home, which this is, does not store the location."""
        model = self.model
        if model.claimed is not None and not model.leaving:
            self.tell(LocationReply(ANN, office, max(model.claimed, model.epoch + 1) + ahead))
            model.claimed = None

    @rule()
    def crash(self) -> None:
        """Only the store survives; unfinished work is due."""
        self.office = Office(HERE, self.store, OfficeLimits(chunk_letters=100))
        self.model.asked_offices |= set() if self.model.claimed is None else {self.model.office}
        for wake in self.office.recover():
            assert isinstance(wake, ScheduleWork)
            self.tell(WorkDue(wake.work))

    @invariant()
    def the_store_agrees(self) -> None:
        model = self.model
        stored = self.store.last_known(ANN)
        if stored is None:
            return
        assert (stored.office, stored.epoch, stored.past_epoch) == (model.office, model.epoch, model.past_epoch)
        tenure = self.store.tenures([ANN]).get(ANN)
        assert (tenure is not None and tenure.active) == (model.office == HERE)
        assert (tenure is not None and not tenure.active) == model.leaving
        claimed = self.store.pending_claim(ANN)
        assert (None if claimed is None else claimed.epoch) == model.claimed
        if model.office == HERE:
            load = self.store.loads([ANN])[ANN]
            assert load == (len(model.readable) - model.acknowledged, len(model.received) - len(model.readable))
            received = self.store.bookkeeping(ANN).mailbox.received
            assert {
                LetterKey(s, n) for s, spans in received.items() for n in range(1, 8) if n in spans
            } == model.received


TestOffice = OfficeMachine.TestCase
TestOffice.settings = thorough()
