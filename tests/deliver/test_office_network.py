"""Several offices with random networks, crashes and moves: each letter arrives once and in order."""

from __future__ import annotations

import contextlib

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from post import PostNetwork
from profiles import thorough

from roamcast.deliver.addressing import home_of
from roamcast.deliver.context import OfficeLimits
from roamcast.errors import ElsewhereError

DOMAINS = ("a", "b", "c")
NAMES = ("a.h.x", "b.h.y")

domains = st.sampled_from(DOMAINS)
names = st.sampled_from(NAMES)


class OfficeNetworkMachine(RuleBasedStateMachine):
    """The model is two lists for each pair: letters sent and letters read."""

    @initialize()
    def begin(self) -> None:
        self.post = PostNetwork(DOMAINS, OfficeLimits(bundle_letters=2, chunk_letters=1))
        self.post.register(*NAMES)
        self.at = {name: home_of(name) for name in NAMES}
        self.epochs = dict.fromkeys(NAMES, 1)
        self.last = dict.fromkeys(NAMES, 0)
        self.sent: dict[tuple[str, str], list[str]] = {(one, other): [] for one in NAMES for other in NAMES}
        self.read: dict[tuple[str, str], list[str]] = {pair: [] for pair in self.sent}

    @rule(sender=names, receiver=names)
    def send(self, sender: str, receiver: str) -> None:
        body = f"{len(self.sent[sender, receiver]) + 1}"
        with contextlib.suppress(ElsewhereError):
            self.post.send(self.at[sender], sender, receiver, body)
            self.sent[sender, receiver].append(body)

    @rule(name=names, to=domains)
    def move(self, name: str, to: str) -> None:
        self.at[name] = to
        self.epochs[name] += 1
        with contextlib.suppress(ElsewhereError):
            self.post.arrive(to, name, self.epochs[name])

    @rule(name=names, acknowledge=st.booleans())
    def pull(self, name: str, acknowledge: bool) -> None:
        with contextlib.suppress(ElsewhereError):
            for letter, offset in self.post.pull(self.at[name], name, self.last[name], 2):
                assert offset is not None
                assert offset > self.last[name]
                self.last[name] = offset
                self.read[letter.sender, name].append(letter.body)
            if acknowledge and self.last[name]:
                self.post.acknowledge(self.at[name], name, self.last[name])

    @precondition(lambda self: self.post.in_flight)
    @rule(data=st.data(), outcome=st.sampled_from(["arrive", "arrive", "arrive", "repeat", "lose"]))
    def carry(self, data: st.DataObject, outcome: str) -> None:
        at = data.draw(st.integers(0, len(self.post.in_flight) - 1))
        _, to, message = self.post.in_flight[at]
        if outcome != "repeat":
            del self.post.in_flight[at]
        if outcome != "lose":
            self.post.tell(to, message)

    @rule(domain=domains)
    def ring(self, domain: str) -> None:
        self.post.ring(domain)

    @rule(domain=domains)
    def crash(self, domain: str) -> None:
        self.post.restart(domain)

    @invariant()
    def at_most_one_office_serves(self) -> None:
        for name in NAMES:
            tenures = (store.tenures([name]).get(name) for store in self.post.stores.values())
            assert sum(tenure is not None and tenure.active for tenure in tenures) <= 1

    @invariant()
    def what_was_read_is_the_beginning_of_what_was_sent(self) -> None:
        for pair, read in self.read.items():
            assert read == self.sent[pair][: len(read)]

    def teardown(self) -> None:
        """Without faults everything is read at the last office, and every office knows where that is."""
        if not hasattr(self, "post"):
            return
        for name in NAMES:
            self.move(name, self.at[name])
        for _ in range(30):
            self.post.carry()
            for domain in DOMAINS:
                self.post.ring(domain)
        for name in NAMES:
            while self.post.pull(self.at[name], name, self.last[name], 1):
                self.pull(name, acknowledge=True)
        assert self.read == self.sent
        for name in NAMES:
            (tenure,) = (tenure for store in self.post.stores.values() for tenure in store.tenures([name]).values())
            for domain, store in self.post.stores.items():
                row = store.last_known(name)
                assert (row is not None and row.acquaintance) == (domain in tenure.friends)
                if domain == home_of(name) or domain in tenure.friends:
                    assert (row.office, row.epoch) == (self.at[name], tenure.epoch)
        assert all(office.recover() == [] for office in self.post.offices.values())


TestNetworks = OfficeNetworkMachine.TestCase
TestNetworks.settings = thorough(longer=2)
