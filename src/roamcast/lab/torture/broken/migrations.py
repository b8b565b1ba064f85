"""Broken migrations: drop the mailbox too early, leave something behind, or ignore the epoch."""

from __future__ import annotations

from dataclasses import replace

from roamcast.deliver.chunks import cut_chunk
from roamcast.deliver.messages import ChunkReceipt, MailboxChunk, MailboxClaim, Transmit
from roamcast.deliver.migration import Migration
from roamcast.deliver.port import Bookkeeping, Mailbox, PendingClaim, Tenure

__all__ = [
    "AcceptsPastChunks",
    "DropsAfterFirstChunk",
    "DropsOnGrant",
    "GrantsAnyEpoch",
    "GrantsWhileArriving",
    "LeavesFriendsBehind",
    "LeavesOffsetsBehind",
    "LeavesReceivedBehind",
    "LeavesSentBehind",
    "ReplacesChunks",
    "SendsFirstChunkOnly",
    "ServesWhileLeaving",
]


class DropsOnGrant(Migration):
    """The old mailbox is dropped before the new one is registered"""

    def _grant(self, tenure: Tenure, message: MailboxClaim) -> None:
        super()._grant(tenure, message)
        self._drop_mailbox(tenure.name)


class DropsAfterFirstChunk(Migration):
    """The old mailbox is dropped when the new one is registered, before it has everything"""

    def on_chunk_receipt(self, message: ChunkReceipt) -> None:
        super().on_chunk_receipt(replace(message, complete=True))


class LeavesReceivedBehind(Migration):
    """The received numbers do not move with the mailbox"""

    def _bookkeeping(self, name: str) -> Bookkeeping:
        bookkeeping = super()._bookkeeping(name)
        return replace(bookkeeping, mailbox=Mailbox(bookkeeping.mailbox.next_offset))


class LeavesOffsetsBehind(Migration):
    """Offsets start again at the new office"""

    def _bookkeeping(self, name: str) -> Bookkeeping:
        bookkeeping = super()._bookkeeping(name)
        return replace(bookkeeping, mailbox=Mailbox(1, bookkeeping.mailbox.received))


class LeavesSentBehind(Migration):
    """The numbers of sent letters do not move with the sender's mailbox"""

    def _bookkeeping(self, name: str) -> Bookkeeping:
        return replace(super()._bookkeeping(name), sent={})


class SendsFirstChunkOnly(Migration):
    """Only the first chunk of the bookkeeping moves"""

    def _bookkeeping(self, name: str) -> Bookkeeping:
        return cut_chunk(super()._bookkeeping(name), 0, self._context.limits.message_bytes)[0]


class ReplacesChunks(Migration):
    """Each chunk of the bookkeeping replaces the one before"""

    def _store_chunk(self, tenure: Tenure, message: MailboxChunk) -> Tenure:
        if message.bookkeeping is not None:
            self._context.store.put_bookkeeping(tenure.name, Bookkeeping())
        return super()._store_chunk(tenure, message)


class LeavesFriendsBehind(Migration):
    """The friend domains do not move with the mailbox"""

    def hand_over(self, name: str) -> None:
        super().hand_over(name)
        for index, effect in enumerate(self._context.effects):
            if isinstance(effect, Transmit) and isinstance(effect.message, MailboxChunk):
                self._context.effects[index] = Transmit(effect.to, replace(effect.message, friends=frozenset()))


class GrantsAnyEpoch(Migration):
    """Every claim is granted, whatever its epoch"""

    def on_claim(self, message: MailboxClaim) -> None:
        tenure = self._context.tenure(message.name)
        if tenure is not None and tenure.complete and message.epoch:
            self._grant(tenure, message)
        else:
            super().on_claim(message)


class ServesWhileLeaving(Migration):
    """The old office keeps serving while it hands over"""

    def _grant(self, tenure: Tenure, message: MailboxClaim) -> None:
        super()._grant(tenure, message)
        self._context.store.put_tenure(tenure)


class GrantsWhileArriving(Migration):
    """A mailbox is given away before it has arrived completely"""

    def on_claim(self, message: MailboxClaim) -> None:
        tenure = self._context.tenure(message.name)
        if tenure is not None and tenure.active and message.epoch > tenure.epoch:
            self._grant(replace(tenure, arriving=None), message)
        else:
            super().on_claim(message)


class AcceptsPastChunks(Migration):
    """A chunk of a past epoch creates a mailbox again"""

    def _is_past(self, name: str, epoch: int) -> bool:
        tenure = self._context.tenure(name)
        return tenure is not None and tenure.active

    def _store_first_chunk(self, message: MailboxChunk) -> Tenure | None:
        if self._context.store.pending_claim(message.name) is None:
            claim = PendingClaim(message.name, message.epoch, None, "", frozenset({message.from_office}))
            self._context.store.put_claim(claim)
        return super()._store_first_chunk(message)
