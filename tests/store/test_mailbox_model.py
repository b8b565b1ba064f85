"""Any history of deliveries, reads, acknowledgements and restarts, compared with an obvious model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from roamcast.errors import InputError
from roamcast.model import Letter
from roamcast.store.memory import MemoryMailboxes
from roamcast.store.port import Delivery, MailboxStore
from roamcast.store.sql import SqlMailboxes, open_sqlite

RECEIVERS = "pq"
SENDERS = "abc"
LAST = 9

some_letters = st.lists(
    st.builds(
        lambda receiver, sender, number: Letter(receiver, sender, number, f"{receiver}{sender}{number}"),
        st.sampled_from(RECEIVERS),
        st.sampled_from(SENDERS),
        st.integers(1, LAST),
    ),
    max_size=12,
)


class Histories(RuleBasedStateMachine):
    """The model keeps every letter for ever: what was had, what lies in which place, how far was acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.store: MailboxStore = self.open()
        self.had: set[tuple[str, str, int]] = set()
        self.lying: dict[str, list[tuple[str, int]]] = {receiver: [] for receiver in RECEIVERS}
        self.acknowledged = dict.fromkeys(RECEIVERS, 0)

    def open(self) -> MailboxStore:
        return MemoryMailboxes()

    @rule(letters=some_letters)
    def deliver(self, letters: list[Letter]) -> None:
        accepted, awake = 0, set()
        for letter in letters:
            if (letter.receiver, letter.sender, letter.number) in self.had:
                continue
            accepted += 1
            self.had.add((letter.receiver, letter.sender, letter.number))
            lying = self.lying[letter.receiver]
            following = sum(sender == letter.sender for sender, _ in lying) + 1
            while (letter.receiver, letter.sender, following) in self.had:
                lying.append((letter.sender, following))
                awake.add(letter.receiver)
                following += 1
        expected = Delivery(accepted, len(letters) - accepted, frozenset(awake))
        assert self.store.deliver(letters) == expected

    @rule(receiver=st.sampled_from(RECEIVERS), limit=st.integers(1, 30), after=st.integers(0, 30))
    def pull(self, receiver: str, limit: int, after: int) -> None:
        start = max(after, self.acknowledged[receiver])
        expected = [
            (place, sender, number, f"{receiver}{sender}{number}")
            for place, (sender, number) in enumerate(self.lying[receiver], 1)
            if place > start
        ]
        assert self.store.pull(receiver, limit, after) == expected[:limit]

    @rule(receiver=st.sampled_from(RECEIVERS), place=st.integers(1, 30))
    def acknowledge(self, receiver: str, place: int) -> None:
        if place > len(self.lying[receiver]):
            with pytest.raises(InputError):
                self.store.acknowledge(receiver, place)
        else:
            before = self.acknowledged[receiver]
            self.acknowledged[receiver] = max(before, place)
            assert self.store.acknowledge(receiver, place) == max(0, place - before)

    @rule()
    def reopen(self) -> None:
        """Memory forgets when it is closed; there this does nothing."""

    @invariant()
    def counts_agree(self) -> None:
        for receiver in RECEIVERS:
            had = {(sender, number) for r, sender, number in self.had if r == receiver}
            lying = len(self.lying[receiver])
            assert self.store.waiting(receiver) == lying - self.acknowledged[receiver]
            assert self.store.held_back(receiver) == len(had) - lying
            received = self.store.received(receiver)
            assert {(s, n) for s, spans in received.items() for n in range(1, LAST + 1) if n in spans} == had

    def teardown(self) -> None:
        """In the end everything is delivered: each letter was or is readable exactly once, in number order."""
        self.deliver([Letter(r, s, n, f"{r}{s}{n}") for r in RECEIVERS for s in SENDERS for n in range(LAST, 0, -1)])
        for receiver in RECEIVERS:
            self.pull(receiver, 100, 0)
            for sender in SENDERS:
                in_order = [number for s, number in self.lying[receiver] if s == sender]
                assert in_order == list(range(1, LAST + 1))
        self.store.close()


class SqliteHistories(Histories):
    """The same, with a file that is closed and opened again now and then."""

    def open(self) -> MailboxStore:
        self.folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
        return SqlMailboxes(open_sqlite(self.folder / "store.db"))

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SqlMailboxes(open_sqlite(self.folder / "store.db"))

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.folder)


TestMemory = Histories.TestCase
TestMemory.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestSqlite = SqliteHistories.TestCase
TestSqlite.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
