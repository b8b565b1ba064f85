"""Filing: puts letters into the mailboxes of this office and hands them out.

The rule of a mailbox is `plan_filing`: each letter once, in the order its sender numbered them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import NamedTuple

from roamcast.deliver.addressing import elsewhere_error
from roamcast.deliver.context import OfficeContext
from roamcast.deliver.port import FiledLetter, FilingPlan, Mailbox, Release, Tenure, bytes_in
from roamcast.deliver.requests import (
    Acknowledge,
    Acknowledged,
    LettersReady,
    MailboxPull,
    Pull,
    Pulled,
    PulledMany,
    PullMany,
)
from roamcast.errors import InputError, RoamcastError, StorageError
from roamcast.model import Letter
from roamcast.ranges import HIGHEST, Ranges, check_bounds

__all__ = ["Filing", "FilingResult", "plan_filing"]

_receiver_of = attrgetter("receiver")
_EMPTY = Mailbox()
_NO_NUMBERS = Ranges()


class FilingResult(NamedTuple):
    """`accepted` letters are in the mailbox, `new` of them were not there before; no room for the `rejected` ones."""

    accepted: Sequence[Letter]
    rejected: Sequence[Letter]
    new: int


class Filing:
    """Only complete mailboxes accept letters. Callers of `file` must check that."""

    def __init__(self, context: OfficeContext) -> None:
        self._context = context

    def file(self, letters: Sequence[Letter]) -> FilingResult:
        """File each letter once. A rejected letter leaves no trace, so it can be sent again.

        A mailbox is full when it has too many readable letters or, for a letter behind a missing one, too many held
        back. Held-back letters never keep out a letter that closes a gap.
        """
        counts = Counter(map(_receiver_of, letters))
        crowded = self.crowded(counts)
        if not crowded:
            return FilingResult(letters, [], self.file_all(counts, letters))
        for name in crowded:
            self._delete_overdue(name)
        accepted, rejected = self._split(letters, crowded)
        return FilingResult(accepted, rejected, self.file_all(counts, accepted))

    def file_all(self, names: Collection[str], letters: Sequence[Letter]) -> int:
        """File letters to `names`, which have room for all of them. Returns how many were new."""
        store = self._context.store
        plan = plan_filing(store.mailboxes(names), letters)
        if plan.received:
            store.file(plan)
        if plan.next_offsets:
            self._context.emit(LettersReady(tuple(plan.next_offsets)))
        return len(plan.filed)

    def pull(self, request: Pull) -> None:
        """Hand out letters. A letter cannot expire after it was handed out; it stays until it is acknowledged."""
        self.check_served(request.name)
        _check_limit(request.limit)
        expired = self._delete_overdue(request.name)
        letters = self._hand_out(request.name, request.after, request.limit, request.size)
        self._context.emit(Pulled(request.name, tuple(letters), expired, self._waiting(request.name)))

    def acknowledge(self, request: Acknowledge) -> None:
        self.check_served(request.name)
        self._context.emit(Acknowledged(request.name, self._acknowledge(request.name, request.through)))

    def acknowledge_many(self, request: PullMany) -> list[int | RoamcastError]:
        """The first half of a PullMany: how many letters of each mailbox were deleted, or why it is refused."""
        tenures = self._context.store.tenures([pull.name for pull in request.pulls])
        return [self._acknowledge_or_refuse(pull, tenures.get(pull.name)) for pull in request.pulls]

    def pull_many(self, request: PullMany, acknowledged: Sequence[int | RoamcastError]) -> None:
        """The second half of a PullMany."""
        outcomes = [
            each if isinstance(each, RoamcastError) else self._without_letters(pull.name, each)
            for pull, each in zip(request.pulls, acknowledged, strict=True)
        ]
        readable = [(at, each) for at, each in enumerate(outcomes) if isinstance(each, Pulled) and each.waiting]
        share = request.size // max(1, len(readable))
        left = request.size
        start = bisect_left(readable, request.first, key=itemgetter(0))
        for at, outcome in readable[start:] + readable[:start]:
            _, through, limit = request.pulls[at]
            letters = self._hand_out(outcome.name, through, limit, share)
            outcomes[at] = replace(outcome, letters=tuple(letters))
            left -= bytes_in(letters[0].letter.body) if len(letters) == 1 else share  # only one can exceed the share
            if left <= 0:
                break
        self._context.emit(PulledMany(tuple(outcomes)))

    def check_served(self, name: str) -> None:
        """Raise ElsewhereError unless the subscriber is served here."""
        self._check_tenure(name, self._context.tenure(name))

    def crowded(self, counts: Mapping[str, int]) -> set[str]:
        """Mailboxes that might not have room for that many more letters."""
        most, most_held = self._context.limits.mailbox_letters, self._context.limits.held_letters
        loads = self._context.store.loads(counts)
        return {
            name
            for name, (readable, held) in loads.items()
            if readable + held + counts[name] > most or held + counts[name] > most_held
        }

    def room(self, name: str) -> int:
        """How many letters the mailbox could accept now, at most."""
        limits = self._context.limits
        readable, held = self._context.store.loads((name,))[name]
        return max(0, limits.mailbox_letters - readable) + max(0, limits.held_letters - held)

    def _delete_overdue(self, name: str) -> int:
        """Delete letters whose time to live ended before they were handed out. Returns how many."""
        overdue = self._context.store.overdue(name, self._context.now)
        if overdue:
            self._context.store.expire(name, overdue)
        return len(overdue)

    def _hand_out(self, name: str, after: int, limit: int, size: int | None) -> list[FiledLetter]:
        store = self._context.store
        letters = store.readable(name, max(0, min(after, HIGHEST)), min(limit, HIGHEST), size)
        expiring = [filed for filed in letters if filed.letter.expires is not None]
        if expiring:
            store.add_letters(name, [FiledLetter(letter._replace(expires=None), offset) for letter, offset in expiring])
        return letters

    def _without_letters(self, name: str, acknowledged: int) -> Pulled:
        expired = self._delete_overdue(name)
        return Pulled(name, (), expired, self._waiting(name), acknowledged)

    def _waiting(self, name: str) -> int:
        return self._context.store.loads((name,))[name].readable

    def _check_tenure(self, name: str, tenure: Tenure | None) -> None:
        if tenure is None or not tenure.active:
            stored = self._context.store.last_known(name)
            raise elsewhere_error(name, stored.office if stored else None, stored.epoch if stored else 0)

    def _acknowledge_or_refuse(self, pull: MailboxPull, tenure: Tenure | None) -> int | RoamcastError:
        try:
            self._check_tenure(pull.name, tenure)
            _check_limit(pull.limit)
            return self._acknowledge(pull.name, pull.through) if pull.through else 0
        except StorageError:
            raise
        except RoamcastError as error:
            return error

    def _acknowledge(self, name: str, through: int) -> int:
        mailbox = self._context.store.mailboxes((name,)).get(name)
        next_offset = 1 if mailbox is None else mailbox.next_offset
        if not 1 <= through < next_offset:
            used = f"offsets 1 to {next_offset - 1}" if next_offset > 1 else "no letter yet"
            raise InputError(
                f"there is no letter at offset {through}", where="through", hint=f"this mailbox has had {used}"
            )
        return self._context.store.acknowledge(name, through)

    def _split(self, letters: Iterable[Letter], names: Collection[str]) -> tuple[list[Letter], list[Letter]]:
        """Letters there is room for, and the others. `names` are the crowded mailboxes."""
        limits = self._context.limits
        mailboxes = self._context.store.mailboxes(names)
        crowded = {name: mailboxes.get(name, Mailbox()) for name in names}
        loads = self._context.store.loads(crowded)
        readable_room = {name: limits.mailbox_letters - load.readable for name, load in loads.items()}
        held_room = {name: limits.held_letters - load.held for name, load in loads.items()}
        received: dict[tuple[str, str], Ranges] = {}
        accepted: list[Letter] = []
        rejected: list[Letter] = []
        for letter in letters:
            if letter.receiver not in crowded:
                accepted.append(letter)
                continue
            pair = letter.receiver, letter.sender
            numbers = received.get(pair) or crowded[letter.receiver].received.get(letter.sender, Ranges())
            if letter.number not in numbers:
                becomes_readable = letter.number == numbers.first_gap
                room = readable_room if becomes_readable else held_room
                if room[letter.receiver] <= 0:
                    rejected.append(letter)
                    continue
                room[letter.receiver] -= 1
                received[pair] = numbers.add(letter.number)
            accepted.append(letter)
        return accepted, rejected


def _check_limit(limit: int) -> None:
    if limit <= 0:
        raise InputError(
            f"the limit must be at least 1, not {limit}", where="limit", hint="ask for at least one letter"
        )


def plan_filing(mailboxes: Mapping[str, Mailbox], letters: Sequence[Letter]) -> FilingPlan:
    """Plan the filing of `letters` in the given order. The result is the same as if they came one by one.

    A receiver that is not in `mailboxes` has an empty mailbox. A letter is readable when all lower numbers of its
    sender are there. It then gets the next offset, and the letters held back behind it follow in number order.
    Raises InputError for a number out of bounds.
    """
    streams: dict[tuple[str, str], _SenderStream] = {}
    next_offsets: dict[str, int] = {}
    filed: list[FiledLetter] = []
    released: list[Release] = []
    for letter in letters:
        receiver, sender, number = letter.receiver, letter.sender, letter.number
        stream = streams.get((receiver, sender))
        if stream is None:
            before = mailboxes.get(receiver, _EMPTY).received.get(sender, _NO_NUMBERS)
            stream = streams[receiver, sender] = _SenderStream(before)
        if number != stream.reach + 1:
            check_bounds(number)
            if number > stream.reach and number not in stream.early and number not in stream.before:
                stream.early[number] = len(filed)
                stream.has_gaps = True
                filed.append(FiledLetter(letter, None))
            continue
        offset = next_offsets.get(receiver) or mailboxes.get(receiver, _EMPTY).next_offset
        filed.append(FiledLetter(letter, offset))
        stream.reach, offset = number, offset + 1
        while stream.has_gaps:
            number = stream.reach + 1
            if number in stream.early:
                at = stream.early.pop(number)
                filed[at] = FiledLetter(filed[at].letter, offset)
                stream.reach, offset = number, offset + 1
            elif held := stream.before.range_of(number):
                released.append(Release(receiver, sender, *held, offset))
                stream.reach, offset = held[1], offset + held[1] - held[0] + 1
            else:
                break
        next_offsets[receiver] = offset
    received = {
        pair: numbers for pair, stream in streams.items() if (numbers := stream.received()) is not stream.before
    }
    return FilingPlan(filed, released, received, next_offsets, len(letters) - len(filed))


class _SenderStream:
    """The letters of one sender to one receiver while a batch is filed.

    `reach` is the highest number with an offset. `early` maps numbers of this batch that are held back to their index
    in the list of filed letters. `has_gaps`: letters may be held back.
    """

    __slots__ = ("before", "early", "has_gaps", "reach")

    def __init__(self, before: Ranges) -> None:
        self.before = before
        self.reach = before.prefix
        self.has_gaps = before.gaps > 0
        self.early: dict[int, int] = {}

    def received(self) -> Ranges:
        """All numbers received so far; `before` itself if there are no new ones."""
        if not self.has_gaps:
            return self.before if self.reach == self.before.prefix else Ranges.through(self.reach)
        first = self.before.first_gap
        numbers = self.before.add_range(first, self.reach) if first <= self.reach else self.before
        return numbers.merge(list(self.early))[0] if self.early else numbers
