"""One office, told anything by anybody in any order, does what an obvious model says."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from profiles import thorough

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.mailbox import START, FiledLetter, LetterKey
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
from roamcast.deliver.port import Bookkeeping
from roamcast.deliver.requests import Acknowledge, Arrive, Arrived, Pull, Pulled, Register
from roamcast.errors import ElsewhereError
from roamcast.model import Letter
from roamcast.store.office.memory import MemoryOfficeStore

HERE, PEERS = "north", ("south", "west")
ANN = "north.pier.ann"
SENDERS = ("p", "q")

keys = st.tuples(st.sampled_from(SENDERS), st.integers(1, 7))
peers = st.sampled_from(PEERS)
epochs = st.integers(1, 12)


@dataclass
class Model:
    """All letters ever taken, in reading order as far as it is known; and who has the mailbox, in which epoch.

    That is hearsay behind `past_epoch`; `asked_offices` are those that it was claimed from.
    """

    office: str = HERE
    epoch: int = 1
    had: set[tuple[str, int]] = field(default_factory=set)
    lying: list[tuple[str, int]] = field(default_factory=list)
    acknowledged: int = 0
    claimed: int | None = None
    leaving: bool = False
    past_epoch: int = 1
    asked_offices: set[str] = field(default_factory=set)

    def take(self, keys: list[tuple[str, int]]) -> None:
        for key in keys:
            if key in self.had:
                continue
            self.had.add(key)
            sender, _ = key
            following = sum(who == sender for who, _ in self.lying) + 1
            while (sender, following) in self.had:
                self.lying.append((sender, following))
                following += 1


class Histories(RuleBasedStateMachine):
    """Peers are played by chance. The mailbox that leaves is kept by the model, to be handed back."""

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

    def wires(self, message: OfficeInput) -> list[tuple[str, object]]:
        return [(effect.to, effect.message) for effect in self.tell(message) if isinstance(effect, Transmit)]

    @rule(keys=st.lists(keys, min_size=1, max_size=6), origin=peers, known_epoch=epochs)
    def post(self, keys: list[tuple[str, int]], origin: str, known_epoch: int) -> None:
        """Taken and answered; or passed on to where it was in a later epoch than the sender knows; or left alone."""
        letters = tuple(Letter(ANN, sender, number, f"{sender}{number}") for sender, number in keys)
        wires = self.wires(LetterBundle(ANN, letters, origin, known_epoch))
        if self.model.office == HERE:
            self.model.take(keys)
            ((to, posted),) = wires
            assert isinstance(posted, BundleReceipt)
            assert (to, list(posted.accepted), posted.rejected) == (origin, keys, ())
        elif self.model.epoch > known_epoch:
            assert wires == [(self.model.office, LetterBundle(ANN, letters, origin, self.model.epoch))]
        else:
            assert wires == []

    @rule(limit=st.integers(1, 20), after=st.integers(0, 20))
    def pull(self, limit: int, after: int) -> None:
        if self.model.office != HERE:
            with pytest.raises(ElsewhereError) as caught:
                self.tell(Pull(ANN, limit, after))
            assert (caught.value.office, caught.value.epoch) == (self.model.office, self.model.epoch)
            return
        start = max(after, self.model.acknowledged)
        expected = [(place, *key) for place, key in enumerate(self.model.lying, 1) if place > start][:limit]
        (pulled,) = self.tell(Pull(ANN, limit, after))
        assert isinstance(pulled, Pulled)
        assert [(place, letter.sender, letter.number) for letter, place in pulled.letters] == expected

    @rule(through=st.integers(1, 20))
    def acknowledge(self, through: int) -> None:
        if self.model.office == HERE and through <= len(self.model.lying):
            self.tell(Acknowledge(ANN, through))
            self.model.acknowledged = max(self.model.acknowledged, through)

    @rule(epoch=epochs, peer=peers)
    def claim(self, epoch: int, peer: str) -> None:
        """Granted to a later epoch, with everything in one portion; otherwise answered with where it is."""
        wires = self.wires(MailboxClaim(ANN, epoch, peer, ""))
        model = self.model
        if model.office == HERE and epoch > model.epoch:
            model.office, model.epoch, model.leaving = peer, epoch, True
            model.past_epoch = epoch
            ((to, portion),) = wires
            assert isinstance(portion, MailboxChunk)
            assert portion.bookkeeping is not None
            assert (to, portion.epoch, portion.last) == (peer, epoch, True)
            self.away = portion.bookkeeping, portion.letters
        elif model.leaving and (model.office, model.epoch) == (peer, epoch):
            assert [(to, type(message)) for to, message in wires] == [(peer, MailboxChunk)]
        else:
            assert wires == [(peer, LocationReply(ANN, model.office, model.epoch))]

    @rule()
    def take_portion(self) -> None:
        """The other side says it has everything."""
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
            assert self.wires(Arrive(ANN, epoch)) == [(model.office, MailboxClaim(ANN, epoch, HERE, ""))]
            model.claimed = epoch

    @rule(epoch=epochs)
    def hand_back(self, epoch: int) -> None:
        """A portion of a later epoch is taken if it was claimed there; one of an earlier epoch is past."""
        model = self.model
        contents, letters = self.away or (Bookkeeping(), ())
        peer = PEERS[0] if model.office == HERE else model.office
        wires = self.wires(MailboxChunk(ANN, epoch, peer, START, letters, True, contents))
        if epoch <= model.past_epoch:
            assert wires == [(peer, ChunkReceipt(ANN, epoch, START, complete=True))]
        elif model.office == HERE or model.claimed is None or peer not in model.asked_offices:
            assert wires == []
        else:
            assert wires == [(peer, ChunkReceipt(ANN, epoch, START, complete=True))]
            model.office, model.epoch, model.claimed = HERE, max(epoch, model.claimed), None
            model.leaving, model.past_epoch = False, model.epoch

    @rule(office=peers, ahead=st.integers(1, 3))
    def hear_where_it_is(self, office: str, ahead: int) -> None:
        """While it is claimed, the office it is with is believed."""
        model = self.model
        if model.claimed is None or model.leaving:
            return
        self.tell(AddressUpdate(ANN, office, model.epoch + ahead, False))
        model.office, model.epoch = office, model.epoch + ahead

    @rule(office=peers, ahead=st.integers(0, 3))
    def hear_that_it_is_too_late(self, office: str, ahead: int) -> None:
        """Word of a later epoch ends a claim; the home, which this is, does not take it for where it is."""
        model = self.model
        if model.claimed is not None and not model.leaving:
            self.tell(LocationReply(ANN, office, max(model.claimed, model.epoch + 1) + ahead))
            model.claimed = None

    @rule()
    def crash(self) -> None:
        """What is in the store is all there is; what is unfinished is due."""
        self.office = Office(HERE, self.store, OfficeLimits(chunk_letters=100))
        self.model.asked_offices |= set() if self.model.claimed is None else {self.model.office}
        for wake in self.office.recover():
            assert isinstance(wake, ScheduleWork)
            self.tell(WorkDue(wake.work))

    @invariant()
    def the_store_agrees(self) -> None:
        model = self.model
        kept = self.store.last_known(ANN)
        if kept is None:
            return
        assert (kept.office, kept.epoch, kept.past_epoch) == (model.office, model.epoch, model.past_epoch)
        tenure = self.store.tenures([ANN]).get(ANN)
        assert (tenure is not None and tenure.active) == (model.office == HERE)
        assert (tenure is not None and not tenure.active) == model.leaving
        claimed = self.store.pending_claim(ANN)
        assert (None if claimed is None else claimed.epoch) == model.claimed
        if model.office == HERE:
            load = self.store.loads([ANN])[ANN]
            assert load == (len(model.lying) - model.acknowledged, len(model.had) - len(model.lying))
            received = self.store.bookkeeping(ANN).mailbox.received
            assert {LetterKey(s, n) for s, spans in received.items() for n in range(1, 8) if n in spans} == model.had


TestOffice = Histories.TestCase
TestOffice.settings = thorough()
