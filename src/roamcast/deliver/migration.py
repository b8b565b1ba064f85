"""Migration: a mailbox follows its subscriber by claim, grant and hand-over in chunks. The paper's MailTransfer.

At any time at most one office has the right to act for a subscriber. It gives that right to one other office, which
has claimed it for a later epoch, and from then on only hands over. So the epochs of a mailbox only rise, whatever is
lost, delayed or repeated, and messages of epochs up to the one an office knows are late.

The new office serves the subscriber as soon as it has all the bookkeeping, nearly always after the first chunk:
letters can be read while the rest arrives. It accepts no new letters, and gives the mailbox to nobody, until it has
everything. So an office that gets a mailbox back knows that the other side had all of it.
"""

from __future__ import annotations

from dataclasses import replace

from roamcast.deliver.address_book import AddressBook
from roamcast.deliver.addressing import Name, elsewhere_error, stale_arrival_error
from roamcast.deliver.chunks import count_items, cut_chunk
from roamcast.deliver.context import OfficeContext
from roamcast.deliver.messages import ChunkReceipt, LocationReply, MailboxChunk, MailboxClaim
from roamcast.deliver.port import (
    NO_OFFICE,
    START,
    Arriving,
    Bookkeeping,
    Cursor,
    FiledLetter,
    LastKnownOffice,
    Leaving,
    LetterKey,
    PendingClaim,
    PendingWork,
    Tenure,
    WorkKind,
    cursor_of,
    take_fitting,
)
from roamcast.deliver.posting import Posting
from roamcast.deliver.requests import (
    ArrivalRefused,
    Arrive,
    Arrived,
    Departed,
    LettersReady,
    Register,
    Remove,
    Removed,
)
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.ranges import HIGHEST

__all__ = ["Migration"]


class Migration:
    """Registration, arrival and removal of subscribers, and both sides of a hand-over."""

    def __init__(self, context: OfficeContext, address_book: AddressBook, posting: Posting) -> None:
        self._context = context
        self._address_book = address_book
        self._posting = posting
        self._progress: dict[str, Cursor] = {}  # confirmed by receipts; learned again after a crash

    # Requests of the subscriber.

    def register(self, request: Register) -> None:
        """Create the subscriber: home entry and active mailbox."""
        name = request.name
        self._check_home(name)
        stored = self._context.store.last_known(name)
        if stored is not None and stored.is_removed:
            raise ConflictError("a subscriber with this name was removed", where=name, hint="choose another name")
        if stored is not None and stored.office != self._context.domain:
            raise elsewhere_error(name, stored.office, stored.epoch)
        if stored is None:
            self._context.store.put_bookkeeping(name, Bookkeeping())
            self._address_book.serve_here(Tenure(name, 1))
            self._posting.post_next(name)
        self._context.emit(Arrived(name, 1 if stored is None else stored.epoch))

    def remove(self, request: Remove) -> None:
        """Remove the subscriber. Only possible at its home, and only while its mailbox is there."""
        name = request.name
        self._check_home(name)
        stored, tenure = self._context.store.last_known(name), self._context.tenure(name)
        if stored is not None and not stored.is_removed and (tenure is None or not tenure.complete):
            raise elsewhere_error(name, stored.office, stored.epoch)
        if stored is None or not stored.is_removed:
            self._context.store.erase_mailbox(name)
            self._drop_mailbox(name)
            self._context.clear_attempts(PendingWork(WorkKind.NOTIFY, name))
            stored = stored or LastKnownOffice(name, NO_OFFICE, 0)
            removed = LastKnownOffice(name, NO_OFFICE, stored.epoch + 1, past_epoch=stored.past_epoch)
            self._context.store.put_last_known(removed)
            self._posting.drop_queue(name)
        self._context.emit(Removed(name))

    def arrive(self, request: Arrive) -> None:
        """Claim the mailbox, or confirm that it is here. Raises if the subscriber has arrived later elsewhere."""
        name, epoch = request.name, request.epoch
        if epoch is not None and not 1 <= epoch < HIGHEST:
            raise InputError(
                f"{epoch} is not a valid epoch", where="epoch", hint="use one more than that of the last arrival"
            )
        tenure = self._context.tenure(name)
        if tenure is not None and tenure.active:
            self._stay(tenure, tenure.epoch + 1 if epoch is None else epoch)
            return
        known = self._address_book.known(name, proven=True)
        is_home = Name.parse(name).home == self._context.domain
        if (known is None and is_home) or (known is not None and known.is_removed):
            raise NotFoundError("there is no such subscriber", where=name, hint="register it first")
        if known is not None and epoch is not None and epoch <= known.epoch:
            raise stale_arrival_error(name, known.office, known.epoch)
        claim = self._context.store.pending_claim(name) or PendingClaim(name, 0, None, "")
        if epoch is not None and epoch < claim.epoch:
            raise stale_arrival_error(name, self._context.domain, claim.epoch)
        is_recall = claim.is_recall or request.is_recall
        arrival = (epoch or claim.epoch, request.previous, "" if is_recall else request.move_proof)
        self._context.store.put_claim(PendingClaim(name, *arrival, claim.asked_offices, is_recall))
        self._context.clear_attempts(PendingWork(WorkKind.CLAIM, name))
        self.send_claim(name)

    def send_claim(self, name: str, *, unanswered: bool = False) -> None:
        """Claim the mailbox from its last known office or from the previous one; if neither is known, ask the home.

        If a claim was not answered, do all of these.
        """
        work = PendingWork(WorkKind.CLAIM, name)
        claim = self._context.store.pending_claim(name)
        if claim is None:
            self._context.clear_attempts(work)
            return
        known, proven = self._address_book.known(name), self._address_book.known(name, proven=True)
        if claim.epoch == 0 and proven is not None:
            claim = replace(claim, epoch=proven.epoch + 1)
        candidates = (known and known.office, claim.previous, proven and proven.office)
        offices = [office for office in candidates if office]  # also skips NO_OFFICE
        claimed_from = dict.fromkeys(offices if unanswered else offices[:1])
        claimed_from.pop(self._context.domain, None)
        self._put_claim(replace(claim, asked_offices=claim.asked_offices | set(claimed_from)))
        for office in claimed_from:
            self._context.transmit(office, MailboxClaim(name, claim.epoch, self._context.domain, claim.move_proof))
        if not offices or unanswered:
            self._address_book.query_home(name)
        self._context.retry_later(work)

    def on_location_reply(self, message: LocationReply, *, is_new: bool) -> None:
        """Claim the mailbox from the office named, or give up if it is there in this or a later epoch.

        A recall never gives up; it continues with a higher epoch.
        """
        claim = self._context.store.pending_claim(message.name)
        if claim is None or message.office == self._context.domain:
            return
        too_late = 0 < claim.epoch <= message.epoch
        if too_late and claim.is_recall and message.epoch < HIGHEST - 1:
            self._context.store.put_claim(replace(claim, epoch=message.epoch + 1))
            self.send_claim(message.name)
        elif too_late or message.office == NO_OFFICE:
            self._give_up(message)
        elif is_new or claim.epoch == 0:
            self.send_claim(message.name)

    # The office that has the mailbox.

    def on_claim(self, message: MailboxClaim) -> None:
        """Grant a claim of a later epoch than ours. Otherwise tell the claimant where the mailbox is.

        While our own mailbox is incomplete, a later claim is ignored; the claimant repeats it.
        """
        name = message.name
        tenure = self._context.tenure(name)
        if tenure is not None and tenure.leaving is None:
            if message.epoch <= tenure.epoch:
                self._context.transmit(message.from_office, LocationReply(name, self._context.domain, tenure.epoch))
            elif tenure.complete:
                self._grant(tenure, message)
            return
        if tenure is not None and tenure.leaving == Leaving(message.from_office, message.epoch):
            self.hand_over(name)
            return
        known = self._address_book.known(name)
        if known is not None:
            self._context.transmit(message.from_office, LocationReply(name, known.office, known.epoch))

    def hand_over(self, name: str) -> None:
        """Send the next chunk, or the same one again while there is no receipt."""
        work = PendingWork(WorkKind.HAND_OVER, name)
        tenure = self._context.tenure(name)
        if tenure is None or tenure.leaving is None:
            self._context.clear_attempts(work)
            return
        after = self._progress.get(name, START)
        letters: tuple[FiledLetter, ...] = ()
        bookkeeping, is_bookkeeping_done, last = None, True, False
        if after.offset == 0:
            bookkeeping, is_bookkeeping_done = cut_chunk(
                self._bookkeeping(name), after.number, self._context.limits.message_bytes
            )
        if is_bookkeeping_done:
            letters, last = self._next_letters(name, after)
        friends = tenure.friends if after == START else frozenset[str]()
        epoch, here = tenure.leaving.epoch, self._context.domain
        chunk = MailboxChunk(name, epoch, here, after, letters, last, bookkeeping=bookkeeping, friends=friends)
        self._context.transmit(tenure.leaving.office, chunk)
        self._context.retry_later(work)

    def on_chunk_receipt(self, message: ChunkReceipt) -> None:
        """Send the next chunk, or drop the old mailbox when the new one is complete."""
        name = message.name
        tenure = self._context.tenure(name)
        if tenure is None or tenure.leaving is None or tenure.leaving.epoch != message.epoch:
            return
        if message.complete:
            self._drop_mailbox(name)
        elif message.cursor > self._progress.get(name, START):
            self._progress[name] = message.cursor
            self._context.clear_attempts(PendingWork(WorkKind.HAND_OVER, name))
            self.hand_over(name)

    # The office that gets the mailbox.

    def on_chunk(self, message: MailboxChunk) -> None:
        """Store each chunk once. Late chunks are answered too, so that the other side can drop the mailbox."""
        name = message.name
        tenure = self._context.tenure(name)
        arriving = None if tenure is None else tenure.arriving
        if tenure is not None and arriving is not None and arriving.epoch == message.epoch:
            if message.after == arriving.cursor and message.from_office == arriving.office:
                tenure = self._store_chunk(tenure, message)
        elif self._is_past(name, message.epoch):
            self._context.transmit(message.from_office, ChunkReceipt(name, message.epoch, message.after, complete=True))
            return
        else:
            tenure = self._store_first_chunk(message)
            if tenure is None:
                return
        is_complete = tenure.arriving is None
        cursor = message.after if tenure.arriving is None else tenure.arriving.cursor
        self._context.transmit(message.from_office, ChunkReceipt(name, message.epoch, cursor, is_complete))
        if is_complete:
            self._posting.post_next(name)

    def _check_home(self, name: str) -> None:
        if Name.parse(name).home != self._context.domain:
            raise InputError(
                f"the name does not belong to domain {self._context.domain!r}",
                where=name,
                hint="send this request to the subscriber's home",
            )

    def _stay(self, tenure: Tenure, epoch: int) -> None:
        """The subscriber arrived where it is served already. This voids pending claims of other offices."""
        if epoch < tenure.epoch:
            raise stale_arrival_error(tenure.name, self._context.domain, tenure.epoch)
        if epoch > tenure.epoch:
            self._address_book.serve_here(replace(tenure, epoch=epoch))
        self._context.emit(Arrived(tenure.name, epoch))

    def _put_claim(self, claim: PendingClaim) -> None:
        if self._context.store.pending_claim(claim.name) != claim:
            self._context.store.put_claim(claim)

    def _drop_claim(self, name: str) -> None:
        self._context.store.drop_claim(name)
        self._context.clear_attempts(PendingWork(WorkKind.CLAIM, name))

    def _give_up(self, message: LocationReply) -> None:
        self._drop_claim(message.name)
        self._address_book.forget_hint(message.name)
        self._context.emit(ArrivalRefused(message.name, message.office, message.epoch))

    def _grant(self, tenure: Tenure, message: MailboxClaim) -> None:
        name = tenure.name
        leaving = replace(tenure, unnotified=frozenset(), leaving=Leaving(message.from_office, message.epoch))
        self._context.store.put_tenure(leaving)
        self._address_book.depart(name, message.from_office, message.epoch)
        self._progress.pop(name, None)
        self._context.emit(Departed(name, message.from_office, message.epoch))
        self.hand_over(name)

    def _drop_mailbox(self, name: str) -> None:
        self._context.store.drop_mailbox(name)
        self._progress.pop(name, None)
        self._context.clear_attempts(PendingWork(WorkKind.HAND_OVER, name))

    def _bookkeeping(self, name: str) -> Bookkeeping:
        """What is handed over; it does not change meanwhile. Fault simulations override this."""
        return self._context.store.bookkeeping(name)

    def _next_letters(self, name: str, after: Cursor) -> tuple[tuple[FiledLetter, ...], bool]:
        """The letters after a cursor that fit one chunk, and whether these are the last."""
        store, limits = self._context.store, self._context.limits
        most = min(limits.chunk_letters, limits.first_chunk_letters) if after.offset == 0 else limits.chunk_letters
        letters = store.readable(name, after.offset, most + 1)
        if len(letters) <= most:
            after_key = LetterKey(after.sender, after.number) if after.offset == HIGHEST else LetterKey("", 0)
            letters = letters + store.held(name, after_key, most + 1 - len(letters))
        fitting = take_fitting(letters[:most], limits.message_bytes, lambda filed: filed.letter.body)
        return tuple(fitting), len(fitting) == len(letters)

    def _is_past(self, name: str, epoch: int) -> bool:
        """Whether we had the mailbox in that epoch or later. Reports of other offices do not count."""
        stored = self._context.store.last_known(name)
        return stored is not None and stored.past_epoch >= epoch

    def _store_first_chunk(self, message: MailboxChunk) -> Tenure | None:
        """Start receiving a mailbox. Returns None unless it was claimed, and from that office."""
        name, office, epoch = message.name, message.from_office, message.epoch
        claim = self._context.store.pending_claim(name)
        if message.after != START or message.bookkeeping is None or claim is None or office not in claim.asked_offices:
            return None
        self._drop_mailbox(name)  # the remains of an earlier stay
        tenure = Tenure(name, epoch, message.friends, arriving=Arriving(office, epoch, START))
        return self._store_chunk(tenure, message)

    def _store_chunk(self, tenure: Tenure, message: MailboxChunk) -> Tenure:
        """Store a chunk without the letters that the subscriber has acknowledged here meanwhile."""
        store, before = self._context.store, tenure
        if message.bookkeeping is not None and not before.active:
            store.add_bookkeeping(tenure.name, message.bookkeeping)
        acknowledged = store.acknowledged(tenure.name)
        letters = [filed for filed in message.letters if filed.offset is None or filed.offset > acknowledged]
        store.add_letters(tenure.name, letters)
        arriving = None if message.last else Arriving(message.from_office, message.epoch, _end_of(message))
        tenure = replace(tenure, arriving=arriving)
        store.put_tenure(tenure)
        if letters:
            self._context.emit(LettersReady((tenure.name,)))
        return self._serve(tenure) if tenure.active and not before.active else tenure

    def _serve(self, tenure: Tenure) -> Tenure:
        """All bookkeeping is here: start serving. The subscriber may have arrived again in the meantime."""
        claim = self._context.store.pending_claim(tenure.name)
        epoch = tenure.epoch if claim is None else max(tenure.epoch, claim.epoch)
        self._drop_claim(tenure.name)
        tenure = self._address_book.serve_here(replace(tenure, epoch=epoch))
        self._context.emit(Arrived(tenure.name, epoch))
        return tenure


def _end_of(chunk: MailboxChunk) -> Cursor:
    """The cursor after a chunk."""
    if chunk.letters:
        return cursor_of(chunk.letters[-1])
    if chunk.bookkeeping is None:
        return chunk.after
    return Cursor(0, "", chunk.after.number + count_items(chunk.bookkeeping))
