"""How a mailbox follows its subscriber: claim, grant, hand-over in portions. The paper's MailTransfer.

At any time at most one office has the right to act for a subscriber. The office that has it gives it to one other,
which has claimed it for a later epoch, and from that moment on only hands over. So epochs rise along the way of a
mailbox, whatever is lost, late or repeated, and what belongs to an epoch up to the one an office knows of is past.

The new office acts from the portion on that completes what the mailbox knows, nearly always the first: letters can be
read while the rest is still coming. It takes no new letters, and gives the mailbox to nobody, until it has everything.
So whoever gets a mailbox back knows that the other side had everything.
"""

from __future__ import annotations

from dataclasses import replace

from roamcast.deliver import refusals
from roamcast.deliver.address_book import Directory
from roamcast.deliver.addressing import Name
from roamcast.deliver.chunks import count_of, part_of
from roamcast.deliver.context import Desk
from roamcast.deliver.letters import START, Cursor, Key, cursor_of, fitting
from roamcast.deliver.mailbox import Filed
from roamcast.deliver.messages import (
    Arrive,
    Arrived,
    Awake,
    Claim,
    Departed,
    Located,
    Portion,
    PortionTaken,
    Refused,
    Register,
    Remove,
    Removed,
)
from roamcast.deliver.pending_work import Duty, Kind
from roamcast.deliver.port import NOBODY, RECALL, Arriving, Claimed, Contents, Leaving, Tenure, Whereabouts
from roamcast.deliver.posting import Posting
from roamcast.ranges import HIGHEST

__all__ = ["Migration"]


class Migration:
    """Both sides of it, and the subscriber's arrival."""

    def __init__(self, desk: Desk, directory: Directory, posting: Posting) -> None:
        self._desk = desk
        self._directory = directory
        self._posting = posting
        self._progress: dict[str, Cursor] = {}  # how far the other side is; it says so again when asked again

    # The subscriber asks.

    def register(self, message: Register) -> None:
        """Creation and start: home and active mailbox."""
        name = message.name
        if Name.parse(name).home != self._desk.domain:
            raise refusals.not_created_here(name, self._desk.domain)
        kept = self._desk.store.whereabouts(name)
        if kept is not None and kept.gone:
            raise refusals.name_used_up(name)
        if kept is not None and kept.office != self._desk.domain:
            raise refusals.elsewhere(name, kept.office, kept.epoch)
        if kept is None:
            self._desk.store.put_contents(name, Contents())
            self._directory.settle(Tenure(name, 1))
            self._posting.go_on(name)
        self._desk.say(Arrived(name, 1 if kept is None else kept.epoch))

    def remove(self, message: Remove) -> None:
        """Only where it was created, and only while its mailbox is there."""
        name = message.name
        if Name.parse(name).home != self._desk.domain:
            raise refusals.not_created_here(name, self._desk.domain)
        kept, tenure = self._desk.store.whereabouts(name), self._desk.tenure(name)
        if kept is not None and not kept.gone and (tenure is None or not tenure.settled):
            raise refusals.elsewhere(name, kept.office, kept.epoch)
        if kept is None or not kept.gone:
            self._desk.store.erase(name)
            self._finish(name)
            self._desk.rest(Duty(Kind.TELL, name))
            last = kept or Whereabouts(name, NOBODY, 0)
            gone = Whereabouts(name, NOBODY, last.epoch + 1, past=last.past)
            self._desk.store.put_whereabouts(gone)
            self._posting.drop(name)
        self._desk.say(Removed(name))

    def arrive(self, message: Arrive) -> None:
        name, epoch = message.name, message.epoch
        if epoch is not None and not 1 <= epoch < HIGHEST:
            raise refusals.bad_epoch(epoch)
        tenure = self._desk.tenure(name)
        if tenure is not None and tenure.active:
            self._stay(tenure, tenure.epoch + 1 if epoch is None else epoch)
            return
        known = self._directory.kept(name)
        is_home = Name.parse(name).home == self._desk.domain
        if (known is None and is_home) or (known is not None and known.gone):
            raise refusals.unknown_subscriber(name)
        if known is not None and epoch is not None and epoch <= known.epoch:
            raise refusals.stale_arrival(name, known.office, known.epoch)
        claimed = self._desk.store.claimed(name)
        pending = 0 if claimed is None else claimed.epoch
        if epoch is not None and epoch < pending:
            raise refusals.stale_arrival(name, self._desk.domain, pending)
        warrant = RECALL if claimed is not None and claimed.warrant == RECALL else message.warrant
        asked = frozenset[str]() if claimed is None else claimed.asked
        self._desk.store.put_claimed(Claimed(name, epoch or pending, message.previous, warrant, asked))
        self._desk.rest(Duty(Kind.CLAIM, name))
        self.go_on_claiming(name)

    def go_on_claiming(self, name: str, *, unanswered: bool = False) -> None:
        """From the office that was last known to have it, or where the subscriber says it was; else ask its home.

        Without an answer, all of these.
        """
        duty = Duty(Kind.CLAIM, name)
        claimed = self._desk.store.claimed(name)
        if claimed is None:
            self._desk.rest(duty)
            return
        known, kept = self._directory.known(name), self._directory.kept(name)
        if claimed.epoch == 0 and kept is not None:
            claimed = replace(claimed, epoch=kept.epoch + 1)
        tried = known and known.office, claimed.previous, kept and kept.office
        offices = [office for office in tried if office]  # NOBODY is none
        asked = dict.fromkeys(offices if unanswered else offices[:1])
        asked.pop(self._desk.domain, None)
        self._put_claimed(replace(claimed, asked=claimed.asked | set(asked)))
        for office in asked:
            self._desk.transmit(office, Claim(name, claimed.epoch, self._desk.domain, claimed.warrant))
        if not offices or unanswered:
            self._directory.ask_home(name)
        self._desk.wake(duty)

    def located(self, message: Located, *, news: bool) -> None:
        """Another office has it, in an epoch before the one claimed: claim it there. Or in a later one: too late.

        For a recall it is never too late.
        """
        claimed = self._desk.store.claimed(message.name)
        if claimed is None or message.office == self._desk.domain:
            return
        late = 0 < claimed.epoch <= message.epoch
        if late and claimed.warrant == RECALL and message.epoch < HIGHEST - 1:
            self._desk.store.put_claimed(replace(claimed, epoch=message.epoch + 1))
            self.go_on_claiming(message.name)
        elif late or message.office == NOBODY:
            self._give_up(message)
        elif news or claimed.epoch == 0:
            self.go_on_claiming(message.name)

    # The office that has the mailbox.

    def claim(self, message: Claim) -> None:
        """Grant what is claimed for a later epoch than ours; tell whoever asks in vain where it is."""
        name = message.name
        tenure = self._desk.tenure(name)
        if tenure is not None and tenure.leaving is None:
            if message.epoch <= tenure.epoch:
                self._desk.transmit(message.office, Located(name, self._desk.domain, tenure.epoch))
            elif tenure.settled:
                self._grant(tenure, message)
            return
        if tenure is not None and tenure.leaving == Leaving(message.office, message.epoch):
            self.hand_over(name)
            return
        known = self._directory.known(name)
        if known is not None:
            self._desk.transmit(message.office, Located(name, known.office, known.epoch))

    def hand_over(self, name: str) -> None:
        """The next portion, or the same again while it is not answered."""
        tenure = self._desk.tenure(name)
        if tenure is None or tenure.leaving is None:
            self._desk.rest(Duty(Kind.HAND, name))
            return
        after = self._progress.get(name, START)
        letters: tuple[Filed, ...] = ()
        contents, known, last = None, True, False
        if after.place == 0:
            contents, known = part_of(self._contents(name), after.number, self._desk.rules.size)
        if known:
            letters, last = self._portion(name, after)
        friends = tenure.friends if after == START else frozenset[str]()
        portion = Portion(
            name, tenure.leaving.epoch, self._desk.domain, after, letters, last, contents=contents, friends=friends
        )
        self._desk.transmit(tenure.leaving.office, portion)
        self._desk.wake(Duty(Kind.HAND, name))

    def portion_taken(self, message: PortionTaken) -> None:
        """The old mailbox goes when the new one has everything."""
        name = message.name
        tenure = self._desk.tenure(name)
        if tenure is None or tenure.leaving is None or tenure.leaving.epoch != message.epoch:
            return
        if message.complete:
            self._finish(name)
        elif message.cursor > self._progress.get(name, START):
            self._progress[name] = message.cursor
            self._desk.rest(Duty(Kind.HAND, name))
            self.hand_over(name)

    # The office that gets it.

    def portion(self, message: Portion) -> None:
        """Each portion once; what is past is answered, so that the other side can let go of it."""
        name = message.name
        tenure = self._desk.tenure(name)
        arriving = None if tenure is None else tenure.arriving
        if tenure is not None and arriving is not None and arriving.epoch == message.epoch:
            if message.after == arriving.cursor and message.office == arriving.office:
                tenure = self._store(tenure, message)
        elif self._past(name, message.epoch):
            self._desk.transmit(message.office, PortionTaken(name, message.epoch, message.after, complete=True))
            return
        else:
            tenure = self._adopt(message)
            if tenure is None:
                return
        cursor = message.after if tenure.arriving is None else tenure.arriving.cursor
        self._desk.transmit(message.office, PortionTaken(name, message.epoch, cursor, tenure.arriving is None))
        if tenure.arriving is None:
            self._posting.go_on(name)

    def _stay(self, tenure: Tenure, epoch: int) -> None:
        """Arrived where it is served already: claims of offices it has thought better of are void from now on."""
        if epoch < tenure.epoch:
            raise refusals.stale_arrival(tenure.name, self._desk.domain, tenure.epoch)
        if epoch > tenure.epoch:
            self._directory.settle(replace(tenure, epoch=epoch))
        self._desk.say(Arrived(tenure.name, epoch))

    def _put_claimed(self, claimed: Claimed) -> None:
        if self._desk.store.claimed(claimed.name) != claimed:
            self._desk.store.put_claimed(claimed)

    def _drop_claim(self, name: str) -> None:
        self._desk.store.drop_claimed(name)
        self._desk.rest(Duty(Kind.CLAIM, name))

    def _give_up(self, message: Located) -> None:
        self._drop_claim(message.name)
        self._directory.forget_hint(message.name)
        self._desk.say(Refused(message.name, message.office, message.epoch))

    def _grant(self, tenure: Tenure, message: Claim) -> None:
        name = tenure.name
        leaving = replace(tenure, untold=frozenset(), leaving=Leaving(message.office, message.epoch))
        self._desk.store.put_tenure(leaving)
        self._directory.depart(name, message.office, message.epoch)
        self._progress.pop(name, None)
        self._desk.say(Departed(name, message.office, message.epoch))
        self.hand_over(name)

    def _finish(self, name: str) -> None:
        self._desk.store.drop_tenure(name)
        self._progress.pop(name, None)
        self._desk.rest(Duty(Kind.HAND, name))

    def _contents(self, name: str) -> Contents:
        """Which do not change while the mailbox is handed over."""
        return self._desk.store.contents(name)

    def _portion(self, name: str, after: Cursor) -> tuple[tuple[Filed, ...], bool]:
        """The letters behind a cursor, and whether they are the last."""
        store, rules = self._desk.store, self._desk.rules
        most = min(rules.portion, rules.first_portion) if after.place == 0 else rules.portion
        found = store.readable(name, after.place, most + 1)
        if len(found) <= most:
            behind = Key(after.sender, after.number) if after.place == HIGHEST else Key("", 0)
            found = found + store.held(name, behind, most + 1 - len(found))
        letters = fitting(found[:most], rules.size, lambda filed: filed.letter.body)
        return tuple(letters), len(letters) == len(found)

    def _past(self, name: str, epoch: int) -> bool:
        """Whether we have had the mailbox in that epoch or since, or have it. What others say of it is no proof."""
        kept = self._desk.store.whereabouts(name)
        return kept is not None and kept.past >= epoch

    def _adopt(self, message: Portion) -> Tenure | None:
        """The first portion of a mailbox. None is taken that was not claimed, nor from who was not asked for it."""
        name, office, epoch = message.name, message.office, message.epoch
        claimed = self._desk.store.claimed(name)
        if message.after != START or message.contents is None or claimed is None or office not in claimed.asked:
            return None
        self._finish(name)  # what is left of an earlier stay
        return self._store(Tenure(name, epoch, message.friends, arriving=Arriving(office, epoch, START)), message)

    def _store(self, tenure: Tenure, message: Portion) -> Tenure:
        """Put in a portion, without what its owner has acknowledged here meanwhile."""
        store, before = self._desk.store, tenure
        if message.contents is not None and not before.active:
            store.add_contents(tenure.name, message.contents)
        acknowledged = store.acknowledged(tenure.name)
        letters = [filed for filed in message.letters if filed.place is None or filed.place > acknowledged]
        store.add(tenure.name, letters)
        arriving = None if message.last else Arriving(message.office, message.epoch, _end_of(message))
        tenure = replace(tenure, arriving=arriving)
        store.put_tenure(tenure)
        if letters:
            self._desk.say(Awake(tenure.name))
        return self._serve(tenure) if tenure.active and not before.active else tenure

    def _serve(self, tenure: Tenure) -> Tenure:
        """All that the mailbox knows is here. Its owner may have arrived again while that was on its way."""
        claimed = self._desk.store.claimed(tenure.name)
        epoch = tenure.epoch if claimed is None else max(tenure.epoch, claimed.epoch)
        self._drop_claim(tenure.name)
        tenure = self._directory.settle(replace(tenure, epoch=epoch))
        self._desk.say(Arrived(tenure.name, epoch))
        return tenure


def _end_of(portion: Portion) -> Cursor:
    """How far it goes."""
    if portion.letters:
        return cursor_of(portion.letters[-1])
    if portion.contents is None:
        return portion.after
    return Cursor(0, "", portion.after.number + count_of(portion.contents))
