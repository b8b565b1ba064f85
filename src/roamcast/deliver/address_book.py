"""Where subscribers are: the home, the address book, friend domains, and telling them all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from roamcast.deliver.addressing import home_of
from roamcast.deliver.context import Desk
from roamcast.deliver.messages import Located, Moved, Noted, Query
from roamcast.deliver.pending_work import Duty, Kind
from roamcast.deliver.port import Tenure, Whereabouts

__all__ = ["Directory"]


class Directory:
    """Of several things known about a subscriber the one of the latest epoch counts, in whatever order they come.

    A subscriber is in a domain's address book if and only if that domain is among its friends, once all is settled:
    the friends are stored first, by the office that serves the subscriber, and only that office's word (a Moved, or a
    Posted) makes an entry; it is repeated until the entry is made, by the one who tells or by the one who posts.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._hints: dict[str, Whereabouts] = {}  # answers of homes about those that no record is kept of

    # Addressing: domain, address book, home.

    def known(self, name: str) -> Whereabouts | None:
        """The latest that is known here without asking; not of those that are served here."""
        latest = self._latest(name)
        return None if latest is None or latest.office == self._desk.domain else latest

    def kept(self, name: str) -> Whereabouts | None:
        """As `known`, but at home only what the subscriber has warranted: others may be wrong, or lie."""
        if home_of(name) != self._desk.domain:
            return self.known(name)
        kept = self._desk.store.whereabouts(name)
        return None if kept is None or kept.office == self._desk.domain else kept

    def ask_home(self, name: str) -> None:
        home = home_of(name)
        if home != self._desk.domain:
            self._desk.transmit(home, Query(name, self._desk.domain))

    def query(self, message: Query) -> None:
        kept = self._desk.store.whereabouts(message.name)
        if kept is not None:
            self._desk.transmit(message.office, Located(kept.name, kept.office, kept.epoch))

    def learn(self, name: str, office: str, epoch: int, *, acquaintance: bool = False, warranted: bool = False) -> bool:
        """Whether it is news. An office takes nobody's word that a subscriber is served by itself.

        A home keeps only what the subscriber has warranted; anything else is worth a try while it asks, no more. Nor
        can who is served here be elsewhere in a later epoch.
        """
        if office == self._desk.domain:
            return False
        kept, latest = self._desk.store.whereabouts(name), self._latest(name)
        tenure = self._desk.tenure(name)
        served = tenure is not None and tenure.active
        news = not served and (latest is None or epoch > latest.epoch)
        if served or (home_of(name) == self._desk.domain and not warranted) or (kept is None and not acquaintance):
            if news and self._asks(name):
                self._hints[name] = Whereabouts(name, office, epoch)
            if kept is not None and acquaintance:
                self._keep(replace(kept, acquaintance=True))
            return news
        if kept is None:
            kept = Whereabouts(name, office, epoch)
        elif epoch > kept.epoch:
            kept = replace(kept, office=office, epoch=epoch)
        self._keep(replace(kept, acquaintance=kept.acquaintance or acquaintance))
        return news

    def forget_hint(self, name: str) -> None:
        self._hints.pop(name, None)

    # Being served here, or having been.

    def settle(self, tenure: Tenure) -> Tenure:
        """The subscriber is served here in a new epoch: note it, and tell its home and all its friends."""
        name, here = tenure.name, self._desk.domain
        self._keep(Whereabouts(name, here, tenure.epoch, here in tenure.friends, past=tenure.epoch))
        tenure = replace(tenure, untold=(tenure.friends | {home_of(name)}) - {here})
        self._desk.store.put_tenure(tenure)
        self.tell(tenure, tenure.untold)
        return tenure

    def depart(self, name: str, office: str, epoch: int) -> None:
        """The subscriber is served by another office in a new epoch."""
        kept = self._desk.store.whereabouts(name)
        self._keep(Whereabouts(name, office, epoch, kept is not None and kept.acquaintance, past=epoch))
        self._desk.rest(Duty(Kind.TELL, name))

    # The paper's AddressAdd, AddressUpdate and UdtAdr_Dom.

    def befriend(self, tenure: Tenure, domain: str, *, told: bool) -> Tenure:
        """The subscriber, served here, has completed an exchange with that domain.

        A domain whose letter was taken for the first time is told by the answer: it asks until it has one, or gets the
        mailbox itself.
        """
        if domain in tenure.friends or domain == self._desk.domain:
            return tenure
        friends = tenure.friends | {domain}
        untold = tenure.untold if told else tenure.untold | {domain}
        tenure = replace(tenure, friends=friends, untold=untold)
        self._desk.store.put_tenure(tenure)
        if not told:
            self.tell(tenure, {domain})
        return tenure

    def tell(self, tenure: Tenure, domains: Collection[str]) -> None:
        for domain in sorted(domains):
            moved = Moved(tenure.name, self._desk.domain, tenure.epoch, domain in tenure.friends)
            self._desk.transmit(domain, moved)
        if domains:
            self._desk.wake(Duty(Kind.TELL, tenure.name))

    def go_on_telling(self, name: str) -> None:
        tenure = self._desk.tenure(name)
        if tenure is None or not tenure.untold:
            self._desk.rest(Duty(Kind.TELL, name))
        else:
            self.tell(tenure, tenure.untold)

    def moved(self, message: Moved) -> None:
        """A home knows whom it has created; others enter in their address book whoever tells them as a friend."""
        name = message.name
        is_home = home_of(name) == self._desk.domain
        if (message.friend and not is_home) or self._desk.store.whereabouts(name) is not None:
            self.learn(name, message.office, message.epoch, acquaintance=message.friend, warranted=True)
            self._desk.transmit(message.office, Noted(name, message.epoch, self._desk.domain, message.friend))

    def noted(self, message: Noted) -> None:
        tenure = self._desk.tenure(message.name)
        if tenure is None or tenure.epoch != message.epoch or message.office not in tenure.untold:
            return
        if message.office in tenure.friends and not message.friend:
            return  # the home became a friend while it was told as the home
        tenure = replace(tenure, untold=tenure.untold - {message.office})
        self._desk.store.put_tenure(tenure)
        if not tenure.untold:
            self._desk.rest(Duty(Kind.TELL, message.name))

    def _asks(self, name: str) -> bool:
        """Whether anything here depends on where it is."""
        return any(Duty(kind, name) in self._desk.tries for kind in (Kind.POST, Kind.CLAIM))

    def _latest(self, name: str) -> Whereabouts | None:
        kept, hint = self._desk.store.whereabouts(name), self._hints.get(name)
        return hint if kept is None or (hint is not None and hint.epoch > kept.epoch) else kept

    def _keep(self, whereabouts: Whereabouts) -> None:
        if self._desk.store.whereabouts(whereabouts.name) != whereabouts:
            self._desk.store.put_whereabouts(whereabouts)
        hint = self._hints.get(whereabouts.name)
        if hint is not None and hint.epoch <= whereabouts.epoch:
            del self._hints[whereabouts.name]
