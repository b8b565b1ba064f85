"""Migrations that let go too early, leave something behind, or do not heed the epoch."""

from __future__ import annotations

from dataclasses import replace

from roamcast.deliver.chunks import part_of
from roamcast.deliver.mailbox import Mailbox
from roamcast.deliver.messages import Claim, Portion, PortionTaken, Transmit
from roamcast.deliver.migration import Migration
from roamcast.deliver.port import Claimed, Contents, Tenure

__all__ = [
    "BothServe",
    "EpochIgnored",
    "FirstPortionIsEnough",
    "ForwardsBeforeRegister",
    "FriendsLeftBehind",
    "GivesWhatItHasNot",
    "NumbersLeftBehind",
    "PartLeftBehind",
    "PartsForgotten",
    "PlacesLeftBehind",
    "RangesLeftBehind",
    "TakesThePast",
]


class ForwardsBeforeRegister(Migration):
    """The old mailbox is emptied and removed before the new one is registered"""

    def _grant(self, tenure: Tenure, message: Claim) -> None:
        super()._grant(tenure, message)
        self._finish(tenure.name)


class FirstPortionIsEnough(Migration):
    """The old mailbox is removed when the new one is registered, before everything in it was taken"""

    def portion_taken(self, message: PortionTaken) -> None:
        super().portion_taken(replace(message, complete=True))


class RangesLeftBehind(Migration):
    """What was received does not travel with the mailbox"""

    def _contents(self, name: str) -> Contents:
        contents = super()._contents(name)
        return replace(contents, mailbox=Mailbox(contents.mailbox.next_place))


class PlacesLeftBehind(Migration):
    """Places begin again at the new office"""

    def _contents(self, name: str) -> Contents:
        contents = super()._contents(name)
        return replace(contents, mailbox=Mailbox(1, contents.mailbox.received))


class NumbersLeftBehind(Migration):
    """The numbers of letters sent do not travel with the sender's mailbox"""

    def _contents(self, name: str) -> Contents:
        return replace(super()._contents(name), sent={})


class PartLeftBehind(Migration):
    """Of what a mailbox knows only the first part travels"""

    def _contents(self, name: str) -> Contents:
        return part_of(super()._contents(name), 0, self._desk.rules.size)[0]


class PartsForgotten(Migration):
    """Each part of what a mailbox knows replaces the one before"""

    def _store(self, tenure: Tenure, message: Portion) -> Tenure:
        if message.contents is not None:
            self._desk.store.put_contents(tenure.name, Contents())
        return super()._store(tenure, message)


class FriendsLeftBehind(Migration):
    """The friend domains do not travel with the mailbox"""

    def hand_over(self, name: str) -> None:
        super().hand_over(name)
        for at, effect in enumerate(self._desk.effects):
            if isinstance(effect, Transmit) and isinstance(effect.message, Portion):
                self._desk.effects[at] = Transmit(effect.to, replace(effect.message, friends=frozenset()))


class EpochIgnored(Migration):
    """Whoever claims a mailbox gets it, in whatever epoch"""

    def claim(self, message: Claim) -> None:
        tenure = self._desk.tenure(message.name)
        if tenure is not None and tenure.settled and message.epoch:
            self._grant(tenure, message)
        else:
            super().claim(message)


class BothServe(Migration):
    """The old office goes on serving while it hands over"""

    def _grant(self, tenure: Tenure, message: Claim) -> None:
        super()._grant(tenure, message)
        self._desk.store.put_tenure(tenure)


class GivesWhatItHasNot(Migration):
    """A mailbox is given away while it is still being handed over"""

    def claim(self, message: Claim) -> None:
        tenure = self._desk.tenure(message.name)
        if tenure is not None and tenure.active and message.epoch > tenure.epoch:
            self._grant(replace(tenure, arriving=None), message)
        else:
            super().claim(message)


class TakesThePast(Migration):
    """A portion of an epoch that is past makes a mailbox again"""

    def _past(self, name: str, epoch: int) -> bool:
        tenure = self._desk.tenure(name)
        return tenure is not None and tenure.active

    def _adopt(self, message: Portion) -> Tenure | None:
        if self._desk.store.claimed(message.name) is None:
            claimed = Claimed(message.name, message.epoch, None, "", frozenset({message.office}))
            self._desk.store.put_claimed(claimed)
        return super()._adopt(message)
