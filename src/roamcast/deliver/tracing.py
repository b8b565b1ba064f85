"""What became of a letter?"""

from __future__ import annotations

from roamcast.deliver.address_book import Directory
from roamcast.deliver.addressing import home_of
from roamcast.deliver.context import Desk
from roamcast.deliver.letters import Fate, Key, expired
from roamcast.deliver.messages import Expired, Inquiry, Trace, Traced
from roamcast.ranges import Ranges

__all__ = ["Tracing"]


class Tracing:
    """Inquiries take the way of a letter, and may be lost: whoever asks may ask again.

    They change nothing, except that a letter which is said to have expired is put away: the word must stay true.
    """

    def __init__(self, desk: Desk, directory: Directory) -> None:
        self._desk = desk
        self._directory = directory

    def trace(self, message: Trace) -> None:
        key = Key(message.sender, message.number)
        queued = self._desk.store.queued(message.receiver, Key(key.sender, key.number - 1), 1)
        if queued and (queued[0].sender, queued[0].number) == key:
            self._desk.say(Traced(message.ticket, Fate.QUEUED, self._desk.domain))
        else:
            self.inquiry(Inquiry(message, self._desk.domain, 0))

    def inquiry(self, message: Inquiry) -> None:
        """Answer it where the mailbox is; pass it on to where that was in a later epoch, or to the home."""
        name = message.trace.receiver
        tenure = self._desk.tenure(name)
        if tenure is not None and tenure.active:
            if (fate := self._fate(message.trace, complete=tenure.settled)) is not None:
                self._answer(message, fate)
            return
        known = self._directory.known(name)
        if known is not None and known.gone:
            self._answer(message, Fate.NO_RECEIVER)
        elif known is not None and known.epoch > message.known:
            self._desk.transmit(known.office, Inquiry(message.trace, message.origin, known.epoch))
        elif known is None and home_of(name) == self._desk.domain:
            self._answer(message, Fate.NO_RECEIVER)
        elif known is None and message.origin == self._desk.domain:
            self._desk.transmit(home_of(name), message)

    def traced(self, message: Traced) -> None:
        self._desk.say(message)

    def _answer(self, message: Inquiry, fate: Fate) -> None:
        traced = Traced(message.trace.ticket, fate, self._desk.domain)
        if message.origin == self._desk.domain:
            self._desk.say(traced)
        else:
            self._desk.transmit(message.origin, traced)

    def _fate(self, trace: Trace, *, complete: bool) -> Fate | None:
        """None while it may be among the letters that have yet to be handed over."""
        contents = self._desk.store.contents(trace.receiver)
        if trace.number in contents.expired.get(trace.sender, Ranges()):
            return Fate.EXPIRED
        if trace.number not in contents.mailbox.received.get(trace.sender, Ranges()):
            return Fate.NOT_ARRIVED
        filed = self._desk.store.letter(trace.receiver, Key(trace.sender, trace.number))
        if filed is not None and filed.place is not None and expired(filed.letter, self._desk.now):
            # By the clock of another office, or by this one when it jumps, there might be time left.
            self._desk.store.expire(trace.receiver, [filed])
            self._desk.say(Expired(trace.receiver, 1))
            return Fate.EXPIRED
        if filed is not None:
            return Fate.HELD_BACK if filed.place is None else Fate.READABLE
        return Fate.ACKNOWLEDGED if complete else None
