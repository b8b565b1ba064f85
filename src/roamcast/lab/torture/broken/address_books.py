"""Broken address books: notify too few, or accept too much."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from roamcast.deliver.address_book import AddressBook
from roamcast.deliver.addressing import home_of
from roamcast.deliver.messages import AddressUpdate, AddressUpdateReceipt
from roamcast.deliver.port import Tenure

__all__ = ["FriendsNotNotified", "HomeNotNotified", "IgnoresEpochs", "NotifiesOnce", "StopsAtFirstReceipt"]


class HomeNotNotified(AddressBook):
    """The home is not notified of a migration"""

    def serve_here(self, tenure: Tenure) -> Tenure:
        tenure = super().serve_here(tenure)
        tenure = replace(tenure, unnotified=tenure.unnotified - {home_of(tenure.name)})
        self._context.store.put_tenure(tenure)
        return tenure

    def notify(self, tenure: Tenure, domains: Collection[str]) -> None:
        super().notify(tenure, set(domains) - {home_of(tenure.name)})


class FriendsNotNotified(AddressBook):
    """Friend domains are not notified of a migration"""

    def serve_here(self, tenure: Tenure) -> Tenure:
        tenure = super().serve_here(tenure)
        tenure = replace(tenure, unnotified=tenure.unnotified & {home_of(tenure.name)})
        self._context.store.put_tenure(tenure)
        return tenure

    def notify(self, tenure: Tenure, domains: Collection[str]) -> None:
        super().notify(tenure, set(domains) & {home_of(tenure.name)})


class NotifiesOnce(AddressBook):
    """Lost address updates are not repeated"""

    def notify(self, tenure: Tenure, domains: Collection[str]) -> None:
        super().notify(tenure, domains)
        self._context.store.put_tenure(replace(tenure, unnotified=tenure.unnotified - set(domains)))


class IgnoresEpochs(AddressBook):
    """The last address update counts, not the one of the latest epoch"""

    def on_address_update(self, message: AddressUpdate) -> None:
        super().on_address_update(message)
        stored = self._context.store.last_known(message.name)
        tenure = self._context.tenure(message.name)
        if stored is not None and tenure is None:
            self._context.store.put_last_known(replace(stored, office=message.office, epoch=message.epoch))


class StopsAtFirstReceipt(AddressBook):
    """One receipt for an address update counts for all domains"""

    def on_address_update_receipt(self, message: AddressUpdateReceipt) -> None:
        super().on_address_update_receipt(message)
        tenure = self._context.tenure(message.name)
        if tenure is not None and tenure.epoch == message.epoch:
            self._context.store.put_tenure(replace(tenure, unnotified=frozenset()))
