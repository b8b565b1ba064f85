"""Where subscribers are: home, address book, friend domains, and address updates."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from roamcast.deliver.addressing import home_of
from roamcast.deliver.context import OfficeContext
from roamcast.deliver.messages import AddressUpdate, AddressUpdateReceipt, LocationQuery, LocationReply
from roamcast.deliver.port import LastKnownOffice, PendingWork, Tenure, WorkKind

__all__ = ["AddressBook"]


class AddressBook:
    """Among several reports about a subscriber the one of the latest epoch counts, in whatever order they arrive.

    Once all is delivered, a subscriber is an acquaintance of a domain if and only if that domain is among its friends.
    The office that serves the subscriber stores its friends first. Only that office can make an entry, by an
    AddressUpdate or a BundleReceipt, which is repeated until the entry is made.
    """

    def __init__(self, context: OfficeContext) -> None:
        self._context = context
        self._hints: dict[str, LastKnownOffice] = {}  # reported offices of subscribers without a stored record

    # Addressing: domain, address book, home.

    def known(self, name: str, *, proven: bool = False) -> LastKnownOffice | None:
        """The latest office known here without asking; None for a subscriber served here.

        With `proven` a home returns only what the subscriber's move proof confirms.
        """
        is_stored = proven and home_of(name) == self._context.domain
        known = self._context.store.last_known(name) if is_stored else self._latest(name)
        return None if known is None or known.office == self._context.domain else known

    def query_home(self, name: str) -> None:
        home = home_of(name)
        if home != self._context.domain:
            self._context.transmit(home, LocationQuery(name, self._context.domain))

    def on_location_query(self, message: LocationQuery) -> None:
        stored = self._context.store.last_known(message.name)
        if stored is not None:
            self._context.transmit(message.from_office, LocationReply(stored.name, stored.office, stored.epoch))

    def learn(self, name: str, office: str, epoch: int, *, acquaintance: bool = False, proven: bool = False) -> bool:
        """Note where a subscriber is said to be. Returns whether that is new.

        Ignores reports that it is served here. A home stores only what is proven by the subscriber; while it looks
        for the subscriber it also tries unproven reports. A subscriber served here cannot be elsewhere.
        """
        if office == self._context.domain:
            return False
        stored, known = self._context.store.last_known(name), self._latest(name)
        tenure = self._context.tenure(name)
        served = tenure is not None and tenure.active
        is_new = not served and (known is None or epoch > known.epoch)
        if served or (home_of(name) == self._context.domain and not proven) or (stored is None and not acquaintance):
            if is_new and self._is_wanted(name):
                self._hints[name] = LastKnownOffice(name, office, epoch)
            if stored is not None and acquaintance:
                self._store(replace(stored, acquaintance=True))
            return is_new
        if stored is None:
            stored = LastKnownOffice(name, office, epoch)
        elif epoch > stored.epoch:
            stored = replace(stored, office=office, epoch=epoch)
        self._store(replace(stored, acquaintance=stored.acquaintance or acquaintance))
        return is_new

    def forget_hint(self, name: str) -> None:
        self._hints.pop(name, None)

    # Subscribers that are or were served here.

    def serve_here(self, tenure: Tenure) -> Tenure:
        """Record that the subscriber is served here in a new epoch, and notify its home and all its friends."""
        name, here = tenure.name, self._context.domain
        self._store(LastKnownOffice(name, here, tenure.epoch, here in tenure.friends, past_epoch=tenure.epoch))
        tenure = replace(tenure, unnotified=(tenure.friends | {home_of(name)}) - {here})
        self._context.store.put_tenure(tenure)
        self.notify(tenure, tenure.unnotified)
        return tenure

    def depart(self, name: str, office: str, epoch: int) -> None:
        """Record that the subscriber is served by another office in a new epoch."""
        stored = self._context.store.last_known(name)
        is_acquaintance = stored is not None and stored.acquaintance
        self._store(LastKnownOffice(name, office, epoch, is_acquaintance, past_epoch=epoch))
        self._context.clear_attempts(PendingWork(WorkKind.NOTIFY, name))

    # The paper's AddressAdd, AddressUpdate and UdtAdr_Dom.

    def add_friend(self, tenure: Tenure, domain: str, *, notified: bool) -> Tenure:
        """The subscriber, served here, has completed an exchange with that domain.

        A domain whose letter was accepted for the first time is notified by the receipt: it repeats the bundle until
        it has one, or gets the mailbox itself.
        """
        if domain in tenure.friends or domain == self._context.domain:
            return tenure
        friends = tenure.friends | {domain}
        unnotified = tenure.unnotified if notified else tenure.unnotified | {domain}
        tenure = replace(tenure, friends=friends, unnotified=unnotified)
        self._context.store.put_tenure(tenure)
        if not notified:
            self.notify(tenure, {domain})
        return tenure

    def notify(self, tenure: Tenure, domains: Collection[str]) -> None:
        for domain in sorted(domains):
            update = AddressUpdate(tenure.name, self._context.domain, tenure.epoch, domain in tenure.friends)
            self._context.transmit(domain, update)
        if domains:
            self._context.retry_later(PendingWork(WorkKind.NOTIFY, tenure.name))

    def retry_notify(self, name: str) -> None:
        tenure = self._context.tenure(name)
        if tenure is None or not tenure.unnotified:
            self._context.clear_attempts(PendingWork(WorkKind.NOTIFY, name))
        else:
            self.notify(tenure, tenure.unnotified)

    def on_address_update(self, message: AddressUpdate) -> None:
        """A home accepts updates for its own subscribers; others accept them from subscribers that are friends."""
        name = message.name
        is_home = home_of(name) == self._context.domain
        if (message.friend and not is_home) or self._context.store.last_known(name) is not None:
            self.learn(name, message.office, message.epoch, acquaintance=message.friend, proven=True)
            receipt = AddressUpdateReceipt(name, message.epoch, self._context.domain, message.friend)
            self._context.transmit(message.office, receipt)

    def on_address_update_receipt(self, message: AddressUpdateReceipt) -> None:
        tenure = self._context.tenure(message.name)
        if tenure is None or tenure.epoch != message.epoch or message.from_office not in tenure.unnotified:
            return
        if message.from_office in tenure.friends and not message.friend:
            return  # the home became a friend after it was notified as the home
        tenure = replace(tenure, unnotified=tenure.unnotified - {message.from_office})
        self._context.store.put_tenure(tenure)
        if not tenure.unnotified:
            self._context.clear_attempts(PendingWork(WorkKind.NOTIFY, message.name))

    def _is_wanted(self, name: str) -> bool:
        """Whether pending work needs to know where the subscriber is."""
        return any(self._context.is_scheduled(PendingWork(kind, name)) for kind in (WorkKind.POST, WorkKind.CLAIM))

    def _latest(self, name: str) -> LastKnownOffice | None:
        stored, hint = self._context.store.last_known(name), self._hints.get(name)
        return hint if stored is None or (hint is not None and hint.epoch > stored.epoch) else stored

    def _store(self, last_known: LastKnownOffice) -> None:
        if self._context.store.last_known(last_known.name) != last_known:
            self._context.store.put_last_known(last_known)
        hint = self._hints.get(last_known.name)
        if hint is not None and hint.epoch <= last_known.epoch:
            del self._hints[last_known.name]
