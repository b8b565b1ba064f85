"""What must hold, checked by one who sees everything and forgives nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from roamcast.deliver.addressing import home_of
from roamcast.deliver.letters import Fate
from roamcast.deliver.messages import Post, Pulled, Trace
from roamcast.model import Letter
from roamcast.ranges import Ranges

if TYPE_CHECKING:
    from roamcast.lab.torture.host import Station
    from roamcast.lab.torture.world import World

__all__ = ["Ledger"]

Way = tuple[tuple[str, int], ...]


class Ledger:
    """All letters ever sent, all that were read, all who ever had a mailbox; and the violations found."""

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
        self._answers: list[tuple[Trace, Fate]] = []

    # Letters.

    def sent(self, letter: Letter) -> None:
        """`letter.expires` says only whether it may."""
        self.letters += 1
        self._sent.setdefault((letter.receiver, letter.sender), []).append(letter)

    def read(self, letter: Letter) -> None:
        """Its receiver has it for the first time, as far as the receiver can tell by its place."""
        line = letter.receiver, letter.sender
        sent, read = self._sent.get(line, []), self._read.setdefault(line, [])
        what = _named(letter)
        if not 1 <= letter.number <= len(sent) or sent[letter.number - 1].body != letter.body:
            self._say(f"invented: {what} was never sent as {letter.body!r}")
        elif letter.number in read:
            self._say(f"duplicated: {what} was read twice")
        else:
            skipped = range(read[-1] + 1 if read else 1, letter.number)
            missing = [number for number in skipped if sent[number - 1].expires is None]
            if read and letter.number < read[-1]:
                self._say(f"reordered: {what} was read after {read[-1]}")
            elif missing:
                self._say(f"reordered: {what} was read before {missing[0]}")
            read.append(letter.number)

    def handed_out(self, pulled: Pulled, acknowledged: int) -> None:
        places = [place for _, place in pulled.letters if place is not None]
        if places != sorted(set(places)):
            self._say(f"reordered: {pulled.name} was handed places {places}")
        if places and places[0] <= acknowledged:
            self._say(f"duplicated: {pulled.name} was handed place {places[0]}, acknowledged through {acknowledged}")

    def traced(self, trace: Trace, fate: Fate) -> None:
        """Acknowledged means read by now; expired means never read, which the end will show."""
        self._answers.append((trace, fate))
        if fate is Fate.ACKNOWLEDGED and trace.number not in self._read.get((trace.receiver, trace.sender), ()):
            self._say(f"misinformed: letter {trace.number} of {trace.sender} to {trace.receiver} was never read")

    def any_letter(self, rng: Random) -> Letter:
        return rng.choice(self._sent[rng.choice(list(self._sent))])

    # Mailboxes.

    def look(self, station: Station) -> None:
        """At whatever the station has changed on its disk."""
        disk = station.disk
        while disk.touched:
            name = disk.touched.pop()
            tenure = disk.all_tenures().get(name)
            if tenure is None or not tenure.active:
                if self._active.get(name) == station.domain:
                    del self._active[name]
                continue
            other = self._active.setdefault(name, station.domain)
            if other != station.domain:
                self._say(f"two live mailboxes: {name} is served by {other} and {station.domain}")
            if (name, tenure.epoch) not in self._owners:
                self.migrations += self._latest.get(name, station.domain) != station.domain
                self._latest[name] = self._owners[name, tenure.epoch] = station.domain
            elif self._owners[name, tenure.epoch] != station.domain:
                owner = self._owners[name, tenure.epoch]
                self._say(f"two live mailboxes: {name} in epoch {tenure.epoch} at {owner} and {station.domain}")

    def pass_on(self, station: Station, post: Post, way: Way) -> Way:
        """A letter goes round in a circle if it comes back to an office that has learned nothing since."""
        known = station.disk.whereabouts(post.receiver)
        step = station.domain, known.epoch if known else 0
        if step in way:
            self._say(f"forwarding loop: a letter to {post.receiver} came by {' '.join(place for place, _ in way)}")
        return (*way, step)

    def fail(self, domain: str, kinds: Sequence[str], error: Exception) -> None:
        self._say(f"broken: {domain} fails at {', '.join(kinds)}: {type(error).__name__}: {error}")

    def flood(self) -> None:
        self._say("never settles: messages make more and more messages")

    # The end, when all is settled.

    def close(self, world: World) -> None:
        for what in world.unsettled():
            self._say(f"never settles: {what}")
        self.expired = 0
        stations = world.stations
        for name, subscriber in world.people.items():
            self._close_mailbox(name, subscriber.at, stations)
            self._close_directory(name, subscriber.at, stations)
        for line in self._sent:
            self._close_line(line, stations[world.people[line[0]].at])
        for trace, fate in self._answers:
            if fate is Fate.EXPIRED and trace.number in self._read.get((trace.receiver, trace.sender), ()):
                self._say(f"misinformed: letter {trace.number} of {trace.sender} to {trace.receiver} was read")

    def _close_mailbox(self, name: str, at: str, stations: Mapping[str, Station]) -> None:
        for station in stations.values():
            tenure = station.disk.all_tenures().get(name)
            if station.domain == at and (tenure is None or not tenure.active):
                self._say(f"orphaned: {name} is at {at} without a mailbox")
            elif station.domain != at and tenure is not None:
                self._say(f"orphaned: a mailbox of {name} stays at {station.domain}")

    def _close_directory(self, name: str, at: str, stations: Mapping[str, Station]) -> None:
        tenure = stations[at].disk.all_tenures().get(name)
        if tenure is None:
            return
        home = stations[home_of(name)].disk.whereabouts(name)
        if home is None or (home.office, home.epoch) != (at, tenure.epoch):
            self._say(f"home never converges: {name} is at {at} in epoch {tenure.epoch}, its home says {home}")
        for domain, station in stations.items():
            entry = station.disk.whereabouts(name)
            listed = entry is not None and entry.acquaintance
            if listed != (domain in tenure.friends):
                self._say(f"definition 5: {name} in the address book of {domain}: {listed}, friends {tenure.friends}")
            elif listed and entry is not None and (entry.office, entry.epoch) != (at, tenure.epoch):
                self._say(f"stale address book: {domain} has {name} at {entry.office} in epoch {entry.epoch}")

    def _close_line(self, line: tuple[str, str], station: Station) -> None:
        receiver, sender = line
        over = station.disk.contents(receiver).expired.get(sender, Ranges())
        read = set(self._read.get(line, ()))
        for letter in self._sent[line]:
            gone, had = letter.number in over, letter.number in read
            self.expired += gone
            if gone and had:
                self._say(f"duplicated: {_named(letter)} was read and has expired")
            elif gone and letter.expires is None:
                self._say(f"lost: {_named(letter)} has expired without a time to live")
            elif not gone and not had:
                self._say(f"lost: {_named(letter)}")

    def _say(self, violation: str) -> None:
        self.violations.append(violation)


def _named(letter: Letter) -> str:
    return f"letter {letter.number} of {letter.sender} to {letter.receiver}"
