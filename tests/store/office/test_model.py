"""Random histories of the SQL office store, compared with the one in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from roamcast.deliver.chunks import count_items, cut_chunk
from roamcast.deliver.filing import plan_filing
from roamcast.deliver.port import FiledLetter, LastKnownOffice, Leaving, LetterKey, OfficeStore, PendingClaim, Tenure
from roamcast.lab.models.office_store import MemoryOfficeStore
from roamcast.model import Letter
from roamcast.store.office.sql import open_office

NAMES = ["ann", "bob"]
names = st.sampled_from(NAMES)
keys = st.builds(LetterKey, st.sampled_from("xyz"), st.integers(1, 6))
some_letters = st.lists(
    st.builds(
        lambda name, key, expires: Letter(name, *key, f"{name}{key}", expires=expires),
        names,
        keys,
        st.none() | st.integers(1, 9),
    ),
    max_size=8,
)


class OfficeStoreMachine(RuleBasedStateMachine):
    """Each rule is a transaction. Some fail at the end; then neither store has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
        self.memory = MemoryOfficeStore()
        self.sql = open_office(self.folder, "north")

    def both(self, act: Callable[[OfficeStore], object], *, fails: bool = False) -> None:
        outcomes = []
        for store in (self.memory, self.sql):
            try:
                with store.transaction():
                    outcomes.append(act(store))
                    if fails:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass
        assert outcomes[0] == outcomes[1]

    @rule(batches=st.lists(some_letters, max_size=3), fails=st.booleans())
    def deliver(self, batches: list[list[Letter]], fails: bool) -> None:
        def act(store: OfficeStore) -> None:
            for letters in batches:
                store.file(plan_filing(store.mailboxes({letter.receiver for letter in letters}), letters))

        self.both(act, fails=fails)

    @rule(name=names, through=st.integers(1, 12), again=st.integers(1, 12))
    def acknowledge(self, name: str, through: int, again: int) -> None:
        """Only used offsets, as an office ensures."""

        def act(store: OfficeStore) -> object:
            last = store.bookkeeping(name).mailbox.next_offset - 1
            return [store.acknowledge(name, min(offset, last)) for offset in (through, again) if last]

        self.both(act)

    @rule(name=names, now=st.integers(0, 10))
    def expire(self, name: str, now: int) -> None:
        def act(store: OfficeStore) -> object:
            over = sorted(store.overdue(name, now), key=lambda filed: filed.offset or 0)
            if over:
                store.expire(name, over)
            return over

        self.both(act)

    @rule(name=names, limit=st.integers(1, 5))
    def clear_expiry(self, name: str, limit: int) -> None:
        """As the first pull does."""

        def act(store: OfficeStore) -> None:
            readable = store.readable(name, 0, limit)
            fresh = [
                FiledLetter(Letter(name, it.letter.sender, it.letter.number, it.letter.body), it.offset)
                for it in readable
            ]
            if fresh:
                store.add_letters(name, fresh)

        self.both(act)

    @rule(name=names, size=st.sampled_from([0, 200, 10_000]), fails=st.booleans())
    def move_away_and_back(self, name: str, size: int, fails: bool) -> None:
        """Bookkeeping in chunks, then letters."""

        def act(store: OfficeStore) -> None:
            bookkeeping = store.bookkeeping(name)
            letters = store.readable(name, 0, 99) + store.held(name, LetterKey("", 0), 99)
            store.drop_mailbox(name)
            after, last = 0, False
            while not last:
                part, last = cut_chunk(bookkeeping, after, size)
                store.add_bookkeeping(name, part)
                after += count_items(part)
            if letters:
                store.add_letters(name, letters)

        self.both(act, fails=fails)

    @rule(name=names, epoch=st.integers(1, 9), other=names, is_leaving=st.booleans(), is_told=st.booleans())
    def put_records(self, name: str, epoch: int, other: str, is_leaving: bool, is_told: bool) -> None:
        unnotified = frozenset[str]() if is_told else frozenset({"south"})
        leaving = Leaving("south", epoch + 1) if is_leaving else None

        def act(store: OfficeStore) -> None:
            store.put_tenure(Tenure(name, epoch, frozenset({"south"}), unnotified, None, leaving))
            store.put_last_known(LastKnownOffice(name, "north", epoch, is_told))
            store.put_last_sent(name, {other: epoch})
            store.put_claim(PendingClaim(other, epoch, None, "w"))

        self.both(act)

    @rule(letters=some_letters, fails=st.booleans())
    def enqueue(self, letters: list[Letter], fails: bool) -> None:
        self.both(lambda store: store.enqueue(letters), fails=fails)

    @rule(name=names, some=st.lists(keys, max_size=4))
    def dequeue(self, name: str, some: list[LetterKey]) -> None:
        self.both(lambda store: sorted(letter.body for letter in store.dequeue(name, some)))

    @rule(name=names)
    def drop(self, name: str) -> None:
        def act(store: OfficeStore) -> None:
            store.drop_mailbox(name)
            store.drop_claim(name)

        self.both(act)

    @rule()
    def reopen(self) -> None:
        self.sql.close()
        self.sql = open_office(self.folder, "north")

    @rule()
    def sweep(self) -> None:
        """Remove the rows of all deleted letters now."""
        self.sql._sweep_all = True
        with self.sql.transaction():
            self.sql.put_last_known(LastKnownOffice("somebody", "else", 1))
        with self.memory.transaction():
            self.memory.put_last_known(LastKnownOffice("somebody", "else", 1))

    @invariant()
    def all_is_the_same(self) -> None:
        def look(store: OfficeStore) -> object:
            return (
                store.loads(NAMES),
                [store.bookkeeping(name) for name in NAMES],
                [store.readable(name, 0, 99) for name in NAMES],
                [store.readable(name, 3, 2) for name in NAMES],
                [store.held(name, LetterKey("x", 3), 99) for name in NAMES],
                [
                    store.letter(name, LetterKey(sender, number))
                    for name in NAMES
                    for sender in "xyz"
                    for number in range(1, 7)
                ],
                store.tenures(NAMES),
                [store.last_known(name) for name in NAMES],
                [store.pending_claim(name) for name in NAMES],
                [store.queued(name, LetterKey("", 0), 99) for name in NAMES],
                [store.queue_length(name) for name in NAMES],
                [store.unposted_count(sender) for sender in "xyz"],
                sorted(store.pending_work()),
            )

        self.both(look)
        with self.sql.transaction():
            ((rows,),) = self.sql._session.rows("SELECT count(*) FROM letters")
        assert self.sql._live + self.sql._deleted_rows == rows
        assert self.sql._live == sum(sum(load) for load in self.loads().values())

    def loads(self) -> dict[str, tuple[int, int]]:
        with self.memory.transaction():
            return {name: tuple(load) for name, load in self.memory.loads(NAMES).items()}

    def teardown(self) -> None:
        self.sql.close()
        shutil.rmtree(self.folder)


TestHistories = OfficeStoreMachine.TestCase
