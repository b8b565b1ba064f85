"""Broken posting: drops letters from the queue too early, or sends them the wrong way."""

from __future__ import annotations

from dataclasses import replace

from roamcast.deliver.messages import BundleReceipt, LetterBundle
from roamcast.deliver.port import LetterKey, PendingWork, WorkKind, key_of
from roamcast.deliver.posting import Posting
from roamcast.deliver.requests import LetterSent, SendLetter

__all__ = [
    "AddsNoFriends",
    "DequeuesOnPosting",
    "DequeuesRejected",
    "FilesWhileArriving",
    "ForwardsIgnoringEpochs",
    "NumbersPerOffice",
    "PostsOnce",
    "ReceiptCoversLowerNumbers",
    "SendsReceiptWhenForwarding",
    "accepts_any_letters",
]


def accepts_any_letters(office: str, bundle: LetterBundle) -> bool:
    """Any office may post letters in the name of the pipeline"""
    return True


class SendsReceiptWhenForwarding(Posting):
    """An office that forwards letters sends a receipt for them"""

    def _forward(self, message: LetterBundle) -> None:
        before = len(self._context.effects)
        super()._forward(message)
        if len(self._context.effects) > before:
            keys = tuple(map(key_of, message.letters))
            receipt = BundleReceipt(message.receiver, keys, (), self._context.domain, message.known_epoch, friend=False)
            self._context.transmit(message.origin, receipt)


class ForwardsIgnoringEpochs(Posting):
    """Letters are forwarded to the last known office, whatever the epoch"""

    def _forward(self, message: LetterBundle) -> None:
        super()._forward(replace(message, known_epoch=-1))


class DequeuesOnPosting(Posting):
    """Letters leave the queue when they are posted, not when there is a receipt"""

    def post_next(self, receiver: str, *, unanswered: bool = False) -> None:
        super().post_next(receiver, unanswered=unanswered)
        for effect in list(self._context.effects):
            bundle = getattr(effect, "message", None)
            if isinstance(bundle, LetterBundle) and bundle.origin == self._context.domain:
                self._context.store.dequeue(receiver, map(key_of, bundle.letters))


class DequeuesRejected(Posting):
    """Letters that a full mailbox rejects leave the queue too"""

    def on_bundle_receipt(self, message: BundleReceipt) -> None:
        super().on_bundle_receipt(replace(message, accepted=message.accepted + message.rejected, rejected=()))


class ReceiptCoversLowerNumbers(Posting):
    """A receipt for one letter counts for all earlier ones of its sender"""

    def on_bundle_receipt(self, message: BundleReceipt) -> None:
        highest: dict[str, int] = {}
        for sender, number in message.accepted:
            highest[sender] = max(number, highest.get(sender, 0))
        covered = tuple(LetterKey(sender, number) for sender, last in highest.items() for number in range(1, last + 1))
        super().on_bundle_receipt(replace(message, accepted=covered))


class NumbersPerOffice(Posting):
    """Each office numbers the letters of a sender on its own"""

    def send(self, request: SendLetter) -> None:
        store, receiver = self._context.store, request.receiver
        own_sender = f"{self._context.domain} {request.sender}"
        last = store.last_sent(request.sender, (receiver,))
        store.put_last_sent(request.sender, store.last_sent(own_sender, (receiver,)))
        super().send(request._replace(number=None))
        store.put_last_sent(own_sender, store.last_sent(request.sender, (receiver,)))
        store.put_last_sent(request.sender, last)
        self._context.effects[-1] = LetterSent(request.sender, receiver, request.number or 0, True)


class PostsOnce(Posting):
    """Letters without a receipt are not posted again"""

    def post_next(self, receiver: str, *, unanswered: bool = False) -> None:
        if unanswered and self._context.is_scheduled(PendingWork(WorkKind.POST, receiver)):
            return
        super().post_next(receiver, unanswered=unanswered)


class FilesWhileArriving(Posting):
    """New letters are filed before the mailbox has arrived completely"""

    def on_letter_bundle(self, message: LetterBundle) -> None:
        tenure = self._context.tenure(message.receiver)
        if tenure is not None and tenure.arriving is not None:
            self._context.store.put_tenure(replace(tenure, arriving=None))
            super().on_letter_bundle(message)
            after = self._context.tenure(message.receiver)
            if after is not None:
                self._context.store.put_tenure(replace(after, arriving=tenure.arriving))
            return
        super().on_letter_bundle(message)


class AddsNoFriends(Posting):
    """The receiving office does not add the origin of a letter to the friends"""

    def on_letter_bundle(self, message: LetterBundle) -> None:
        before = self._context.tenure(message.receiver)
        super().on_letter_bundle(message)
        if before is not None and before.complete:
            self._context.store.put_tenure(before)
