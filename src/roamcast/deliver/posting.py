"""Posting: sends letters to the office that has the mailbox, until there is a receipt. The paper's MailSender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from roamcast.deliver.address_book import AddressBook
from roamcast.deliver.addressing import check_name, home_of, is_name
from roamcast.deliver.context import OfficeContext
from roamcast.deliver.filing import Filing
from roamcast.deliver.messages import BundleReceipt, LetterBundle
from roamcast.deliver.port import LetterKey, PendingWork, WorkKind, key_of, take_fitting
from roamcast.deliver.requests import Deposit, Deposited, LetterSent, LettersSent, SendLetter, SendLetters
from roamcast.errors import CapacityError, ConflictError, NotFoundError, RoamcastError, StorageError
from roamcast.model import Letter
from roamcast.ranges import HIGHEST, check_bounds

__all__ = ["Posting", "may_post"]

_receiver_of, _number_of = attrgetter("receiver"), attrgetter("number")

_FIRST = LetterKey("", 0)
_AT_ONCE = 8  # bundles filed from a queue in one go, so that other messages are not delayed
_LATER = "keep the letter and send it again later"


def may_post(office: str, bundle: LetterBundle) -> bool:
    """Whether a bundle that this office has sent may be filed.

    A pipeline deposits its letters at the home of their receiver. So only the home may post letters of a sender that is
    not a subscriber, and nobody may forward them: a number that another office has used up would make the pipeline's
    own letter look like a duplicate. Letters that were sent to a former office are posted again when the home has
    learned where the subscriber is.
    """
    return office == home_of(bundle.receiver) or all(is_name(letter.sender) for letter in bundle.letters)


class Posting:
    """One queue for each receiver, with at most one bundle in flight.

    A letter leaves its queue only in the transaction that files it here, or on receipt from the office that has filed
    it. An office forwards bundles it cannot file, but stores nothing of them and sends no receipt.
    """

    def __init__(self, context: OfficeContext, address_book: AddressBook, filing: Filing) -> None:
        self._context = context
        self._address_book = address_book
        self._filing = filing
        self._resume: dict[str, LetterKey] = {}  # where a queue continues, so that rejected letters do not block it

    def send(self, request: SendLetter) -> None:
        """Numbers are dense: the next one is accepted, an earlier one is a duplicate, a later one is refused."""
        self._context.emit(self._send_one(request))

    def send_all(self, request: SendLetters) -> None:
        """Send one by one, unless all mailboxes are here and have room, which is the usual case."""
        outcomes = self._send_together(request.letters)
        if outcomes is None:
            outcomes = []
            for letter in request.letters:
                try:
                    outcomes.append(self._send_one(letter))
                except StorageError:
                    raise
                except RoamcastError as error:
                    outcomes.append(error)
        self._context.emit(LettersSent(tuple(outcomes)))

    def _send_one(self, request: SendLetter) -> LetterSent:
        self._filing.check_served(request.sender)
        check_name(request.receiver)
        store, receiver = self._context.store, request.receiver
        last = store.last_sent(request.sender, (receiver,))[receiver]
        number = last + 1 if request.number is None else request.number
        if number > last + 1:
            raise ConflictError(
                f"letter {number} is out of order",
                where="number",
                hint=f"the next letter to this receiver has number {last + 1}",
            )
        if number == last + 1:
            self._accept(request, number)
            store.put_last_sent(request.sender, {receiver: number})
        return LetterSent(request.sender, receiver, number, number > last)

    def _send_together(self, requests: Sequence[SendLetter]) -> list[LetterSent | RoamcastError] | None:
        """Returns None, and changes nothing, unless every letter can simply be filed here."""
        store = self._context.store
        counts = Counter(map(_receiver_of, requests))
        receivers: dict[str, set[str]] = {}  # by sender
        for request in requests:
            receivers.setdefault(request.sender, set()).add(request.receiver)
        tenures = store.tenures(counts.keys() | receivers.keys())
        if not all((tenure := tenures.get(name)) is not None and tenure.complete for name in counts):
            return None
        if not all((tenure := tenures.get(name)) is not None and tenure.active for name in receivers):
            return None
        if self._filing.crowded(counts):
            return None
        last_sent = {sender: store.last_sent(sender, of_sender) for sender, of_sender in receivers.items()}
        changed: dict[str, dict[str, int]] = {sender: {} for sender in receivers}
        letters: list[Letter] = []
        outcomes: list[LetterSent | RoamcastError] = []
        for request in requests:
            sender, receiver, _, number, _, _ = request
            following = last_sent[sender][receiver] + 1
            if number is None:
                number = following
            if number > following:
                return None
            if number == following:
                last_sent[sender][receiver] = changed[sender][receiver] = number
                letters.append(self._letter(request, number))
            outcomes.append(LetterSent(sender, receiver, number, number == following))
        self._filing.file_all(counts, letters)
        for sender, numbers in changed.items():
            store.put_last_sent(sender, numbers)
        return outcomes

    def deposit(self, request: Deposit) -> None:
        """Queue what cannot be filed at once, so that one mailbox does not delay the others.

        These queues are unbounded: a refused letter would stay with the pipeline and block everything behind it.
        """
        letters = request.letters
        for number in {extreme(map(_number_of, letters), default=1) for extreme in (min, max)}:
            check_bounds(number)
        names = set(map(_receiver_of, letters))
        here = {name for name, tenure in self._context.store.tenures(names).items() if tenure.complete}
        elsewhere: set[str] = set()
        for name in names - here:
            check_name(name)
            if not self._is_removed(name):
                elsewhere.add(name)
        to_file = letters if len(here) == len(names) else [letter for letter in letters if letter.receiver in here]
        accepted, rejected, new = self._filing.file(to_file)
        later = [*(letter for letter in letters if letter.receiver in elsewhere), *rejected] if elsewhere else rejected
        self._context.store.enqueue(later)
        for name in sorted({letter.receiver for letter in later}):
            self.start(name)
        dropped = len(letters) - len(accepted) - len(later)
        self._context.emit(Deposited(len(accepted), len(later), len(accepted) - new, dropped))

    def drop_queue(self, receiver: str) -> None:
        """Delete the letters queued for a removed subscriber."""
        while bundle := self._context.store.queued(receiver, _FIRST, self._context.limits.bundle_letters):
            self._context.store.dequeue(receiver, map(key_of, bundle))
        self._resume.pop(receiver, None)
        self._context.clear_attempts(PendingWork(WorkKind.POST, receiver))

    def start(self, receiver: str) -> None:
        """Post the queue unless a bundle is in flight."""
        if not self._context.is_scheduled(PendingWork(WorkKind.POST, receiver)):
            self.post_next(receiver)

    def post_next(self, receiver: str, *, unanswered: bool = False) -> None:
        """Post the next bundle or, if there was no receipt, the same one again."""
        work = PendingWork(WorkKind.POST, receiver)
        tenure = self._context.tenure(receiver)
        if tenure is not None and tenure.complete:
            self._file_queued(receiver)
        is_here = tenure is not None and tenure.active
        bundle = self._context.store.queued(receiver, _FIRST, 1) if is_here else self._next_bundle(receiver)
        if not bundle:
            self._context.clear_attempts(work)
            self._resume.pop(receiver, None)
            self._address_book.forget_hint(receiver)
            return
        if is_here or self._post(receiver, bundle, unanswered):
            self._context.retry_later(work)

    def on_letter_bundle(self, message: LetterBundle) -> None:
        """File the letters, forward them to where the receiver was in a later epoch, or ignore them.

        The epoch rises with each forwarding, so there are no loops. An origin without a receipt tries again.
        """
        tenure = self._context.tenure(message.receiver)
        if tenure is not None and tenure.complete:
            accepted, rejected, new = self._filing.file(message.letters)
            if new:
                tenure = self._address_book.add_friend(tenure, message.origin, notified=True)
            keys = tuple(map(key_of, accepted)), tuple(map(key_of, rejected))
            friend = message.origin in tenure.friends
            receipt = BundleReceipt(message.receiver, *keys, self._context.domain, tenure.epoch, friend, message.stamp)
            if message.origin == self._context.domain:
                self.on_bundle_receipt(receipt)  # it was forwarded back to its origin
            else:
                self._context.transmit(message.origin, receipt)
        elif self._is_removed(message.receiver):
            keys = tuple(map(key_of, message.letters)), ()
            receipt = BundleReceipt(message.receiver, *keys, self._context.domain, 0, False, message.stamp)
            self._context.transmit(message.origin, receipt)
        elif tenure is None or not tenure.active:
            self._forward(message)

    def on_bundle_receipt(self, message: BundleReceipt) -> None:
        """The other office has filed letters. Both sides become acquainted (the paper's AddressAdd)."""
        receiver = message.receiver
        if message.friend or self._context.is_scheduled(PendingWork(WorkKind.POST, receiver)):
            self._address_book.learn(receiver, message.from_office, message.epoch, acquaintance=message.friend)
        dequeued = self._context.store.dequeue(receiver, message.accepted)
        for sender in sorted({letter.sender for letter in dequeued}):
            tenure = self._context.tenure(sender)
            if tenure is not None and tenure.active:
                self._address_book.add_friend(tenure, message.from_office, notified=False)
        if message.rejected:
            self._resume[receiver] = max(message.rejected)
        if dequeued:
            self._context.clear_attempts(PendingWork(WorkKind.POST, receiver))
            self.start(receiver)

    def _letter(self, request: SendLetter, number: int) -> Letter:
        now, here = self._context.now, self._context.domain
        expires = None if request.ttl is None else now + request.ttl
        return Letter(request.receiver, request.sender, number, request.body, request.title, here, now, expires)

    def _accept(self, request: SendLetter, number: int) -> None:
        letter = self._letter(request, number)
        store, limits, receiver = self._context.store, self._context.limits, request.receiver
        tenure = self._context.tenure(receiver)
        if tenure is not None and tenure.complete:
            if self._filing.file([letter]).rejected:
                raise CapacityError("the mailbox is full", where=receiver, hint=_LATER)
            return
        stored = store.last_known(receiver)
        if stored.is_removed if stored is not None else home_of(receiver) == self._context.domain:
            raise NotFoundError("there is no such subscriber", where=receiver, hint="check the receiver's name")
        if store.queue_length(receiver) >= limits.queue_letters:
            raise CapacityError("too many letters to this receiver are queued", where=receiver, hint=_LATER)
        if store.unposted_count(request.sender) >= limits.unposted_letters:
            raise CapacityError("too many letters of this sender are queued", where=request.sender, hint=_LATER)
        store.enqueue([letter])
        self.start(receiver)

    def _file_queued(self, receiver: str) -> None:
        """The mailbox is here now: file the queue as far as there is room, continuing where it stopped last.

        If nothing of a bundle is accepted, there is no room for later letters of its last sender either.
        """
        store, work = self._context.store, PendingWork(WorkKind.POST, receiver)
        after = start = self._resume.pop(receiver, _FIRST)
        for _ in range(_AT_ONCE):
            limit = min(self._context.limits.bundle_letters, max(1, self._filing.room(receiver)))
            bundle = store.queued(receiver, after, limit)
            if bundle:
                accepted = self._filing.file(bundle).accepted
                store.dequeue(receiver, map(key_of, accepted))
                last = key_of(bundle[-1])
                after = last if accepted else LetterKey(last.sender, HIGHEST)
                if accepted:
                    self._context.clear_attempts(work)  # retry the rest soon
            elif start == _FIRST:
                return
            else:
                after = start = _FIRST
        self._resume[receiver] = after

    def _next_bundle(self, receiver: str) -> list[Letter]:
        """The letters after those rejected last; at the end of the queue, from the beginning again."""
        queued, limit = self._context.store.queued, self._context.limits.bundle_letters
        after = self._resume.pop(receiver, _FIRST)
        letters = queued(receiver, after, limit) or (queued(receiver, _FIRST, limit) if after != _FIRST else [])
        return take_fitting(letters, self._context.limits.message_bytes, lambda letter: letter.body)

    def _is_removed(self, receiver: str) -> bool:
        stored = self._context.store.last_known(receiver)
        return stored is not None and stored.is_removed

    def _post(self, receiver: str, bundle: Sequence[Letter], unanswered: bool) -> bool:
        """Post to the last known office. Ask the home if none is known or there was no receipt.

        Returns False, with the queue dropped, if the receiver was removed.
        """
        known = self._address_book.known(receiver)
        if known is not None and known.is_removed:
            self.drop_queue(receiver)
            self._address_book.forget_hint(receiver)
            return False
        if known is not None:
            message = LetterBundle(receiver, tuple(bundle), self._context.domain, known.epoch)
            self._context.transmit(known.office, message)
        if known is None or unanswered:
            self._address_book.query_home(receiver)
        return True

    def _forward(self, message: LetterBundle) -> None:
        known = self._address_book.known(message.receiver)
        if known is not None and not known.is_removed and known.epoch > message.known_epoch:
            self._context.transmit(known.office, replace(message, known_epoch=known.epoch))
