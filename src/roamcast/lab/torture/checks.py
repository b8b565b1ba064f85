"""Checks of the delivery guarantees by an observer that sees the whole simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from roamcast.deliver.addressing import home_of
from roamcast.deliver.messages import LetterBundle
from roamcast.deliver.requests import LetterState, Pulled, TraceLetter
from roamcast.model import Letter
from roamcast.ranges import Ranges

if TYPE_CHECKING:
    from roamcast.lab.torture.host import Host
    from roamcast.lab.torture.simulation import TortureSimulation

__all__ = ["DeliveryChecker"]

Route = tuple[tuple[str, int], ...]


class DeliveryChecker:
    """Records all letters sent and read and all owners of mailboxes, and reports violations."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.letters = 0
        self.migrations = 0
        self.expired = 0
        self._sent: dict[tuple[str, str], list[Letter]] = {}
        self._read: dict[tuple[str, str], list[int]] = {}
        self._owners: dict[tuple[str, int], str] = {}
        self._active: dict[str, str] = {}
        self._latest: dict[str, str] = {}
        self._answers: list[tuple[TraceLetter, LetterState]] = []

    # Letters.

    def sent(self, letter: Letter) -> None:
        """Record a letter. `letter.expires` only says whether it may expire."""
        self.letters += 1
        self._sent.setdefault((letter.receiver, letter.sender), []).append(letter)

    def read(self, letter: Letter) -> None:
        """Check a letter that its receiver reads for the first time, judging by its offset."""
        pair = letter.receiver, letter.sender
        sent, read = self._sent.get(pair, []), self._read.setdefault(pair, [])
        name = _describe(letter)
        if not 1 <= letter.number <= len(sent) or sent[letter.number - 1].body != letter.body:
            self._report(f"invented: {name} was never sent as {letter.body!r}")
        elif letter.number in read:
            self._report(f"duplicated: {name} was read twice")
        else:
            skipped = range(read[-1] + 1 if read else 1, letter.number)
            missing = [number for number in skipped if sent[number - 1].expires is None]
            if read and letter.number < read[-1]:
                self._report(f"reordered: {name} was read after {read[-1]}")
            elif missing:
                self._report(f"reordered: {name} was read before {missing[0]}")
            read.append(letter.number)

    def handed_out(self, pulled: Pulled, acknowledged: int) -> None:
        offsets = [offset for _, offset in pulled.letters if offset is not None]
        if offsets != sorted(set(offsets)):
            self._report(f"reordered: {pulled.name} got offsets {offsets}")
        if offsets and offsets[0] <= acknowledged:
            self._report(f"duplicated: {pulled.name} got offset {offsets[0]}, acknowledged through {acknowledged}")

    def traced(self, trace: TraceLetter, state: LetterState) -> None:
        """Check a trace. Acknowledged letters must have been read; `check_end` checks that expired ones never are."""
        self._answers.append((trace, state))
        if state is LetterState.ACKNOWLEDGED and trace.number not in self._read.get((trace.receiver, trace.sender), ()):
            self._report(f"misinformed: letter {trace.number} of {trace.sender} to {trace.receiver} was never read")

    def any_letter(self, rng: Random) -> Letter:
        return rng.choice(self._sent[rng.choice(list(self._sent))])

    # Mailboxes.

    def check_host(self, host: Host) -> None:
        """Check the tenures that a host has changed on its disk."""
        disk = host.disk
        while disk.touched:
            name = disk.touched.pop()
            tenure = disk.all_tenures().get(name)
            if tenure is None or not tenure.active:
                if self._active.get(name) == host.domain:
                    del self._active[name]
                continue
            other = self._active.setdefault(name, host.domain)
            if other != host.domain:
                self._report(f"two live mailboxes: {name} is served by {other} and {host.domain}")
            if (name, tenure.epoch) not in self._owners:
                self.migrations += self._latest.get(name, host.domain) != host.domain
                self._latest[name] = self._owners[name, tenure.epoch] = host.domain
            elif self._owners[name, tenure.epoch] != host.domain:
                owner = self._owners[name, tenure.epoch]
                self._report(f"two live mailboxes: {name} in epoch {tenure.epoch} at {owner} and {host.domain}")

    def check_route(self, host: Host, post: LetterBundle, route: Route) -> Route:
        """Check a forwarded bundle. It loops if it returns to an office that has learned nothing new since."""
        known = host.disk.last_known(post.receiver)
        step = host.domain, known.epoch if known else 0
        if step in route:
            self._report(
                f"forwarding loop: a letter to {post.receiver} went by {' '.join(office for office, _ in route)}"
            )
        return (*route, step)

    def office_failed(self, domain: str, kinds: Sequence[str], error: Exception) -> None:
        self._report(f"failed: {domain} on {', '.join(kinds)}: {type(error).__name__}: {error}")

    def too_many_messages(self) -> None:
        self._report("never settles: messages keep multiplying")

    # The end, when all work is done.

    def check_end(self, simulation: TortureSimulation) -> None:
        for reason in simulation.unsettled():
            self._report(f"never settles: {reason}")
        self.expired = 0
        hosts = simulation.hosts
        for name, subscriber in simulation.subscribers.items():
            self._check_mailboxes(name, subscriber.at, hosts)
            self._check_address_books(name, subscriber.at, hosts)
        for pair in self._sent:
            self._check_letters(pair, hosts[simulation.subscribers[pair[0]].at])
        for trace, state in self._answers:
            if state is LetterState.EXPIRED and trace.number in self._read.get((trace.receiver, trace.sender), ()):
                self._report(f"misinformed: letter {trace.number} of {trace.sender} to {trace.receiver} was read")

    def _check_mailboxes(self, name: str, at: str, hosts: Mapping[str, Host]) -> None:
        for host in hosts.values():
            tenure = host.disk.all_tenures().get(name)
            if host.domain == at and (tenure is None or not tenure.active):
                self._report(f"orphaned: {name} is at {at} without a mailbox")
            elif host.domain != at and tenure is not None:
                self._report(f"orphaned: {host.domain} still has a mailbox of {name}")

    def _check_address_books(self, name: str, at: str, hosts: Mapping[str, Host]) -> None:
        tenure = hosts[at].disk.all_tenures().get(name)
        if tenure is None:
            return
        home = hosts[home_of(name)].disk.last_known(name)
        if home is None or (home.office, home.epoch) != (at, tenure.epoch):
            self._report(f"home never converges: {name} is at {at} in epoch {tenure.epoch}, its home says {home}")
        for domain, host in hosts.items():
            entry = host.disk.last_known(name)
            listed = entry is not None and entry.acquaintance
            if listed != (domain in tenure.friends):
                self._report(
                    f"definition 5: {name} in the address book of {domain}: {listed}, friends {tenure.friends}"
                )
            elif listed and entry is not None and (entry.office, entry.epoch) != (at, tenure.epoch):
                self._report(f"stale address book: {domain} has {name} at {entry.office} in epoch {entry.epoch}")

    def _check_letters(self, pair: tuple[str, str], host: Host) -> None:
        receiver, sender = pair
        expired = host.disk.bookkeeping(receiver).expired.get(sender, Ranges())
        read = set(self._read.get(pair, ()))
        for letter in self._sent[pair]:
            is_expired, is_read = letter.number in expired, letter.number in read
            self.expired += is_expired
            if is_expired and is_read:
                self._report(f"duplicated: {_describe(letter)} was read and has expired")
            elif is_expired and letter.expires is None:
                self._report(f"lost: {_describe(letter)} has expired without a time to live")
            elif not is_expired and not is_read:
                self._report(f"lost: {_describe(letter)}")

    def _report(self, violation: str) -> None:
        self.violations.append(violation)


def _describe(letter: Letter) -> str:
    return f"letter {letter.number} of {letter.sender} to {letter.receiver}"
