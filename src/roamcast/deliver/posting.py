"""The paper's MailSender: letters on their way to a mailbox, kept until the office that has it has taken them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roamcast.deliver import refusals
from roamcast.deliver.address_book import Directory
from roamcast.deliver.addressing import check_name, home_of
from roamcast.deliver.context import Desk
from roamcast.deliver.filing import Clerk
from roamcast.deliver.letters import Key, fitting, key_of
from roamcast.deliver.messages import Deposit, Deposited, Post, Posted, Send, SendAll, Sent, SentAll
from roamcast.deliver.pending_work import Duty, Kind
from roamcast.errors import RoamcastError, StorageError
from roamcast.model import Letter
from roamcast.ranges import HIGHEST, check_bounds

__all__ = ["Posting"]

_FIRST = Key("", 0)
_AT_ONCE = 8  # bundles from a queue into a mailbox, so that others get their turn in between


class Posting:
    """One line for each receiver, with one bundle on its way at a time.

    A letter leaves its queue only in the transaction that puts it into a mailbox here, or on word of the office that
    has put it into one. An office passes on what it cannot take, but keeps nothing of it and answers for nothing.
    """

    def __init__(self, desk: Desk, directory: Directory, clerk: Clerk) -> None:
        self._desk = desk
        self._directory = directory
        self._clerk = clerk
        self._turns: dict[str, Key] = {}  # where a line goes on, so that letters refused do not keep others waiting

    def send(self, message: Send) -> None:
        """Numbers are dense: the next one is taken, an earlier one was sent before, any other is refused."""
        self._desk.say(self._sent(message))

    def send_all(self, message: SendAll) -> None:
        """One by one, unless all mailboxes are here and have room, as they mostly do."""
        outcomes = self._sent_together(message.letters)
        if outcomes is None:
            outcomes = []
            for each in message.letters:
                try:
                    outcomes.append(self._sent(each))
                except StorageError:
                    raise
                except RoamcastError as error:
                    outcomes.append(error)
        self._desk.say(SentAll(tuple(outcomes)))

    def _sent(self, message: Send) -> Sent:
        self._clerk.served(message.sender)
        check_name(message.receiver)
        store, receiver = self._desk.store, message.receiver
        last = store.sent(message.sender, receiver)
        number = last + 1 if message.number is None else message.number
        if number > last + 1:
            raise refusals.out_of_turn(number, last)
        if number == last + 1:
            self._accept(message, number)
            store.put_sent(message.sender, receiver, number)
        return Sent(message.sender, receiver, number, number > last)

    def _sent_together(self, messages: Sequence[Send]) -> list[Sent | RoamcastError] | None:
        """None, and nothing is done, if anything is out of the ordinary."""
        store = self._desk.store
        receivers, senders = {it.receiver for it in messages}, {it.sender for it in messages}
        tenures = store.tenures(receivers | senders)
        if not all((tenure := tenures.get(name)) is not None and tenure.settled for name in receivers):
            return None
        if not all((tenure := tenures.get(name)) is not None and tenure.active for name in senders):
            return None
        if self._clerk.crowded(receivers, len(messages)):
            return None
        lasts: dict[tuple[str, str], int] = {}
        letters: list[Letter] = []
        outcomes: list[Sent | RoamcastError] = []
        for it in messages:
            line = it.sender, it.receiver
            last = lasts.get(line)
            if last is None:
                last = store.sent(*line)
            number = last + 1 if it.number is None else it.number
            if number > last + 1:
                return None
            if number == last + 1:
                lasts[line] = number
                letters.append(self._letter(it, number))
            outcomes.append(Sent(*line, number, number > last))
        self._clerk.take(letters)
        for line, number in lasts.items():
            store.put_sent(*line, number)
        return outcomes

    def deposit(self, message: Deposit) -> None:
        """What cannot be filed at once is queued, for one mailbox must not keep those of others waiting.

        Queues have no bound for it: what is refused would stay with the pipeline, and keep back all that comes after.
        """
        names = {letter.receiver for letter in message.letters}
        for name in names:
            check_name(name)
        for letter in message.letters:
            check_bounds(letter.number)
        here = {name for name, tenure in self._desk.store.tenures(names).items() if tenure.settled}
        gone = {name for name in names - here if self._is_gone(name)}
        filed, full, new = self._clerk.take([letter for letter in message.letters if letter.receiver in here])
        later = [letter for letter in message.letters if letter.receiver not in here and letter.receiver not in gone]
        later += full
        self._desk.store.enqueue(later)
        for name in sorted({letter.receiver for letter in later}):
            self.start(name)
        dropped = len(message.letters) - len(filed) - len(later)
        self._desk.say(Deposited(len(filed), len(later), len(filed) - new, dropped))

    def drop(self, receiver: str) -> None:
        """Nobody will ever read what is queued for it."""
        while bundle := self._desk.store.queued(receiver, _FIRST, self._desk.rules.bundle):
            self._desk.store.dequeue(receiver, map(key_of, bundle))
        self._turns.pop(receiver, None)
        self._desk.rest(Duty(Kind.POST, receiver))

    def start(self, receiver: str) -> None:
        """There is something in the queue: go on unless a bundle is on its way."""
        if Duty(Kind.POST, receiver) not in self._desk.tries:
            self.go_on(receiver)

    def go_on(self, receiver: str, *, unanswered: bool = False) -> None:
        """The next bundle, or, if there was no answer, the same again."""
        duty = Duty(Kind.POST, receiver)
        tenure = self._desk.tenure(receiver)
        if tenure is not None and tenure.settled:
            self._file(receiver)
        is_here = tenure is not None and tenure.active
        bundle = self._desk.store.queued(receiver, _FIRST, 1) if is_here else self._next(receiver)
        if not bundle:
            self._desk.rest(duty)
            self._turns.pop(receiver, None)
            self._directory.forget_hint(receiver)
            return
        if is_here or self._post(receiver, bundle, unanswered):
            self._desk.wake(duty)

    def post(self, message: Post) -> None:
        """Letters have come. They are taken, or passed on to where the receiver was in a later epoch, or left alone.

        With each step the epoch gets higher, so there is no circle. Whoever is left without an answer tries again.
        """
        tenure = self._desk.tenure(message.receiver)
        if tenure is not None and tenure.settled:
            taken, full, new = self._clerk.take(message.letters)
            if new:
                tenure = self._directory.befriend(tenure, message.origin, told=True)
            keys = tuple(map(key_of, taken)), tuple(map(key_of, full))
            friend = message.origin in tenure.friends
            posted = Posted(message.receiver, *keys, self._desk.domain, tenure.epoch, friend, message.stamp)
            if message.origin == self._desk.domain:
                self.posted(posted)  # it was passed on to where it came from
            else:
                self._desk.transmit(message.origin, posted)
        elif self._is_gone(message.receiver):
            over = tuple(map(key_of, message.letters))
            posted = Posted(message.receiver, over, (), self._desk.domain, 0, friend=False, stamp=message.stamp)
            self._desk.transmit(message.origin, posted)
        elif tenure is None or not tenure.active:
            self._pass_on(message)

    def posted(self, message: Posted) -> None:
        """The other office has them. Both sides become acquainted, as the paper's AddressAdd has it."""
        receiver = message.receiver
        if message.friend or Duty(Kind.POST, receiver) in self._desk.tries:
            self._directory.learn(receiver, message.office, message.epoch, acquaintance=message.friend)
        gone = self._desk.store.dequeue(receiver, message.taken)
        for sender in sorted({letter.sender for letter in gone}):
            tenure = self._desk.tenure(sender)
            if tenure is not None and tenure.active:
                self._directory.befriend(tenure, message.office, told=False)
        if message.full:
            self._turns[receiver] = max(message.full)
        if gone:
            self._desk.rest(Duty(Kind.POST, receiver))
            self.start(receiver)

    def _letter(self, message: Send, number: int) -> Letter:
        expires = None if message.ttl is None else self._desk.now + message.ttl
        return Letter(
            message.receiver,
            message.sender,
            number,
            message.body,
            message.title,
            self._desk.domain,
            self._desk.now,
            expires,
        )

    def _accept(self, message: Send, number: int) -> None:
        letter = self._letter(message, number)
        store, receiver = self._desk.store, message.receiver
        tenure = self._desk.tenure(receiver)
        if tenure is not None and tenure.settled:
            if self._clerk.take([letter]).full:
                raise refusals.mailbox_full(receiver)
            return
        kept = store.whereabouts(receiver)
        if kept.gone if kept is not None else home_of(receiver) == self._desk.domain:
            raise refusals.unknown_receiver(receiver)
        if store.queue_length(receiver) >= self._desk.rules.queue:
            raise refusals.queue_full(receiver)
        if store.unposted(message.sender) >= self._desk.rules.unposted:
            raise refusals.too_many_unposted(message.sender)
        store.enqueue([letter])
        self.start(receiver)

    def _file(self, receiver: str) -> None:
        """The mailbox has come here: from the queue into it, as far as there is room, and from where it went on last.

        Where nothing is taken of a bundle there is no room for anything behind it of its last sender either.
        """
        store, duty = self._desk.store, Duty(Kind.POST, receiver)
        after = begun = self._turns.pop(receiver, _FIRST)
        for _ in range(_AT_ONCE):
            bundle = store.queued(receiver, after, min(self._desk.rules.bundle, max(1, self._clerk.room(receiver))))
            if bundle:
                taken = self._clerk.take(bundle).taken
                store.dequeue(receiver, map(key_of, taken))
                last = key_of(bundle[-1])
                after = last if taken else Key(last.sender, HIGHEST)
                if taken:
                    self._desk.rest(duty)  # what is left need not wait for long
            elif begun == _FIRST:
                return
            else:
                after = begun = _FIRST
        self._turns[receiver] = after

    def _next(self, receiver: str) -> list[Letter]:
        """A bundle from behind those refused last, or from the beginning again."""
        queued, limit = self._desk.store.queued, self._desk.rules.bundle
        turn = self._turns.pop(receiver, _FIRST)
        found = queued(receiver, turn, limit) or (queued(receiver, _FIRST, limit) if turn != _FIRST else [])
        return fitting(found, self._desk.rules.size, lambda letter: letter.body)

    def _is_gone(self, receiver: str) -> bool:
        kept = self._desk.store.whereabouts(receiver)
        return kept is not None and kept.gone

    def _post(self, receiver: str, bundle: Sequence[Letter], unanswered: bool) -> bool:
        """To where it was last known to be; without an answer, or without knowing, ask its home.

        False, and the line is empty, if it is known to have left for good.
        """
        known = self._directory.known(receiver)
        if known is not None and known.gone:
            self.drop(receiver)
            self._directory.forget_hint(receiver)
            return False
        if known is not None:
            post = Post(receiver, tuple(bundle), self._desk.domain, known.epoch)
            self._desk.transmit(known.office, post)
        if known is None or unanswered:
            self._directory.ask_home(receiver)
        return True

    def _pass_on(self, message: Post) -> None:
        known = self._directory.known(message.receiver)
        if known is not None and not known.gone and known.epoch > message.known:
            self._desk.transmit(known.office, replace(message, known=known.epoch))
