"""Directories that tell too little, or believe too much."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from roamcast.deliver.address_book import Directory
from roamcast.deliver.addressing import home_of
from roamcast.deliver.messages import Moved, Noted
from roamcast.deliver.port import Tenure

__all__ = ["BelievesAnything", "FriendsUntold", "HomeUntold", "OneAnswerIsEnough", "TellsOnce"]


class HomeUntold(Directory):
    """The home is not told of a migration"""

    def settle(self, tenure: Tenure) -> Tenure:
        tenure = super().settle(tenure)
        told = replace(tenure, untold=tenure.untold - {home_of(tenure.name)})
        self._desk.store.put_tenure(told)
        return told

    def tell(self, tenure: Tenure, domains: Collection[str]) -> None:
        super().tell(tenure, set(domains) - {home_of(tenure.name)})


class FriendsUntold(Directory):
    """Friend domains are not told of a migration"""

    def settle(self, tenure: Tenure) -> Tenure:
        tenure = super().settle(tenure)
        told = replace(tenure, untold=tenure.untold & {home_of(tenure.name)})
        self._desk.store.put_tenure(told)
        return told

    def tell(self, tenure: Tenure, domains: Collection[str]) -> None:
        super().tell(tenure, set(domains) & {home_of(tenure.name)})


class TellsOnce(Directory):
    """Address updates are not repeated when they are lost"""

    def tell(self, tenure: Tenure, domains: Collection[str]) -> None:
        super().tell(tenure, domains)
        self._desk.store.put_tenure(replace(tenure, untold=tenure.untold - set(domains)))


class BelievesAnything(Directory):
    """The last word on where somebody is counts, not the one of the latest epoch"""

    def moved(self, message: Moved) -> None:
        super().moved(message)
        kept = self._desk.store.whereabouts(message.name)
        tenure = self._desk.tenure(message.name)
        if kept is not None and tenure is None:
            self._desk.store.put_whereabouts(replace(kept, office=message.office, epoch=message.epoch))


class OneAnswerIsEnough(Directory):
    """When one domain has answered an address update the others are not told again"""

    def noted(self, message: Noted) -> None:
        super().noted(message)
        tenure = self._desk.tenure(message.name)
        if tenure is not None and tenure.epoch == message.epoch:
            self._desk.store.put_tenure(replace(tenure, untold=frozenset()))
