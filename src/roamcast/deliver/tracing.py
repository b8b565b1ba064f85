"""Tracing: finds out what became of a letter."""

from __future__ import annotations

from roamcast.deliver.address_book import AddressBook
from roamcast.deliver.addressing import home_of
from roamcast.deliver.context import OfficeContext
from roamcast.deliver.messages import TraceQuery
from roamcast.deliver.port import LetterKey, is_expired
from roamcast.deliver.requests import LettersExpired, LetterState, TraceLetter, TraceReply
from roamcast.ranges import Ranges

__all__ = ["Tracing"]


class Tracing:
    """Trace queries take the way of a letter. They may be lost: the client asks again.

    They change nothing, except that a letter reported as expired is deleted, so that the report stays true.
    """

    def __init__(self, context: OfficeContext, address_book: AddressBook) -> None:
        self._context = context
        self._address_book = address_book

    def trace(self, request: TraceLetter) -> None:
        key = LetterKey(request.sender, request.number)
        queued = self._context.store.queued(request.receiver, LetterKey(key.sender, key.number - 1), 1)
        if queued and (queued[0].sender, queued[0].number) == key:
            self._context.emit(TraceReply(request.ticket, LetterState.QUEUED, self._context.domain))
        else:
            self.on_trace_query(TraceQuery(request, self._context.domain, 0))

    def on_trace_query(self, message: TraceQuery) -> None:
        """Answer if the mailbox is here. Otherwise forward to where it was in a later epoch, or to the home."""
        name = message.trace.receiver
        tenure = self._context.tenure(name)
        if tenure is not None and tenure.active:
            if (state := self._state(message.trace, complete=tenure.complete)) is not None:
                self._reply(message, state)
            return
        known = self._address_book.known(name)
        if known is not None and known.is_removed:
            self._reply(message, LetterState.NO_RECEIVER)
        elif known is not None and known.epoch > message.known_epoch:
            self._context.transmit(known.office, TraceQuery(message.trace, message.origin, known.epoch))
        elif known is None and home_of(name) == self._context.domain:
            self._reply(message, LetterState.NO_RECEIVER)
        elif known is None and message.origin == self._context.domain:
            self._context.transmit(home_of(name), message)

    def _reply(self, message: TraceQuery, state: LetterState) -> None:
        reply = TraceReply(message.trace.ticket, state, self._context.domain)
        if message.origin == self._context.domain:
            self._context.emit(reply)
        else:
            self._context.transmit(message.origin, reply)

    def _state(self, trace: TraceLetter, *, complete: bool) -> LetterState | None:
        """None while the letter may be among those that have not been handed over yet."""
        bookkeeping = self._context.store.bookkeeping(trace.receiver)
        if trace.number in bookkeeping.expired.get(trace.sender, Ranges()):
            return LetterState.EXPIRED
        if trace.number not in bookkeeping.mailbox.received.get(trace.sender, Ranges()):
            return LetterState.NOT_ARRIVED
        filed = self._context.store.letter(trace.receiver, LetterKey(trace.sender, trace.number))
        if filed is not None and filed.offset is not None and is_expired(filed.letter, self._context.now):
            # Delete it now: by another office's clock, or by this one after a jump, it might not be expired.
            self._context.store.expire(trace.receiver, [filed])
            self._context.emit(LettersExpired(trace.receiver, 1))
            return LetterState.EXPIRED
        if filed is not None:
            return LetterState.HELD_BACK if filed.offset is None else LetterState.READABLE
        return LetterState.ACKNOWLEDGED if complete else None
