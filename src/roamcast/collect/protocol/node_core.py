"""A sensor's part in CET and direct gathering.

The core decides what to keep, what to send next and to whom. It has no clock: every call says what time it is. It sends
nothing: `effects` are for its driver to carry out, in order. Transfers are pulled: when the link can carry one, the
driver asks for it (`poll`, `relay`, `pass_on`), reports that it was `sent`, and in the end that it was `confirmed` or
`refused`. A core keeps a copy until the transfer is confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf

from roamcast.collect.protocol.communities import Community
from roamcast.collect.protocol.energy import EnergyAccount
from roamcast.collect.protocol.events import Copy, CopyQueue, EventId, FieldEvent, NodeId
from roamcast.collect.protocol.heads import Headship
from roamcast.collect.protocol.members import Members
from roamcast.collect.protocol.messages import (
    Answer,
    Bid,
    Call,
    CellEntry,
    Dropped,
    Effect,
    Grant,
    Handover,
    Have,
    Hello,
    KeeperQuery,
    Kept,
    Message,
    NewHead,
    Note,
    Offer,
    Outgoing,
    Path,
    PutBack,
    Relay,
    Spread,
    Status,
    Tell,
    Transfer,
)
from roamcast.collect.protocol.path_sets import PathSets
from roamcast.collect.protocol.policy import CollectPolicy

__all__ = ["NodeCore"]

IsFree = Callable[[NodeId], bool]


class NodeCore:
    """One sensor. `counts` has the counters of `roamcast simulate`; every drop is counted, and is an effect."""

    def __init__(
        self,
        me: NodeId,
        community: Community,
        policy: CollectPolicy,
        account: EnergyAccount,
        *,
        seed: int = 0,
        first_version: int = 0,
    ) -> None:
        """`seed` shapes the trees of heads and is the same in all members. Versions must be higher after a restart."""
        self.me = me
        self.community = community
        self.account = account
        self.queue = CopyQueue(policy.K, policy.by_successes)
        self.passing: list[Outgoing] = []
        """Transfers to pass on at once: they are on their way along a route, or go up the whole way."""
        self.counts: Counter[str] = Counter()
        self.effects: list[Effect] = []
        self.heads = Headship(me, community, theta=policy.theta, patience=policy.patience, seed=seed)
        self._policy = policy
        self._paths = PathSets(community, cuts=policy.cuts_paths)
        self._version = first_version
        self._reach: set[NodeId] = set()
        self._members = Members()
        self._queries: dict[tuple[NodeId, int], int] = {}
        """Queries to the head without a reply, and when they were sent."""
        self._last_upper = -1
        self._next_expiry = inf

    def restore(
        self,
        copies: Iterable[Copy],
        passing: Iterable[Outgoing],
        counts: Mapping[str, int],
        head: NewHead | None,
        kept: Iterable[tuple[EventId, int]],
    ) -> None:
        """Continue after a restart. Mules that were in contact may be gone: what was relayed to them is dropped."""
        self.counts.update(counts)
        self.passing = list(passing)
        for copy in copies:
            self._add(copy)
        if not self._policy.keeps_relayed:
            self._drop(lambda copy: copy.mule is not None, "stranded")
        self.heads.kept.update(kept)
        if head is not None:
            self.heads.hear_head(head)

    # Time, readings and contacts.

    def advance(self, now: int) -> None:
        """Drop what has expired, and give up waiting."""
        for out in [out for out in self.passing if out.transfer.event.expires <= now]:
            self.passing.remove(out)
            self._count_drop(
                out.transfer.event, "stranded" if isinstance(out.transfer, Relay) else "expired_in_transit"
            )
        if now >= self._next_expiry:
            self._drop(lambda copy: copy.event.expires <= now, "expired")
            self._next_expiry = min((copy.event.expires for copy in self.queue.copies), default=inf)
        self.heads.advance(now, self._spread)
        for mule, number in [key for key, since in self._queries.items() if now - since >= self._policy.patience]:
            del self._queries[mule, number]
            self._tell(mule, Answer(number, None, ()))
            self.heads.call(self.account.joules, now, self._spread)  # the head does not reply

    def met_by(self, member: NodeId) -> tuple[NodeId, ...]:
        """The mules in reach of a member, as far as is known here."""
        return tuple(sorted(self._reach)) if member == self.me else self._members.met_by(member)

    @property
    def mules(self) -> list[NodeId]:
        """The mules in contact with the community, as far as is known here."""
        return list(self._paths)

    def next_time(self) -> int | None:
        """When `advance` has something to do, if nothing else happens."""
        times = [copy.event.expires for copy in self.queue.copies]
        times += [since + self._policy.patience for since in self._queries.values()]
        times += [] if self.heads.decide_at is None else [self.heads.decide_at]
        return min(times, default=None)

    def sense(self, event: FieldEvent, now: int) -> None:
        """The sensor has created an event."""
        self.counts["created"] += 1
        if self.queue.is_full:
            self._count_drop(event, "full")
        else:
            self._add(Copy(event, now))

    def contact_begins(self, mule: NodeId, now: int) -> None:
        """A mule has come into reach."""
        self._reach.add(mule)
        if self._policy.resend == "cell":
            self._forget(mule)
        self._tell(mule, Hello(self.community.id, self.community.is_isolated))
        self._meet(mule, self.me, now)
        self._announce_status()

    def contact_ends(self, mule: NodeId, now: int) -> None:
        """A mule has gone out of reach."""
        self._reach.discard(mule)
        self._lose(mule, self.me, now)
        self._announce_status()
        self._queries = {key: since for key, since in self._queries.items() if key[0] != mule}

    # What mules and members say.

    def hear(self, mule: NodeId, message: Message, now: int) -> None:
        """A mule in reach says something."""
        match message:
            case Path() | Have():
                if self._learn(message, now):
                    self._spread(message)
            case CellEntry():
                self._forget(mule)
            case Offer(number, events):
                query = KeeperQuery(self.me, mule, number, events)
                if self.heads.head == self.me:
                    self._answer(self.heads.grant(query, self._members.full))
                else:
                    self._queries[mule, number] = now
                    self._spread(query)

    def note(self, note: Note, now: int) -> None:
        """A note of another member has spread to this one."""
        match note:
            case Path() | Have():
                self._learn(note, now)
            case Status():
                met, lost = self._members.update(note)
                for mule in met:
                    self._meet(mule, note.node, now)
                for mule in lost:
                    self._lose(mule, note.node, now)
            case Call(_, term):
                if term > self.heads.term:
                    self._spread(Bid(self.me, term, self.account.joules))
            case Bid():
                self.heads.hear_bid(note, now, self._spread)
            case NewHead():
                self.heads.hear_head(note)
            case KeeperQuery() if self.heads.head == self.me:
                self._spread(self.heads.grant(note, self._members.full))
            case Grant(node, mule, number) if node == self.me and (mule, number) in self._queries:
                del self._queries[mule, number]
                self._answer(note)
            case Kept():
                self.heads.keep(note)

    # Transfers.

    def poll(self, mule: NodeId, now: int) -> Outgoing | None:
        """The next event for a mule in reach."""
        copy = self.queue.first(lambda copy: self._is_sendable(copy, mule, now))
        return None if copy is None else Outgoing(mule, Handover(copy.event, copy.hops + 1), copy)

    def relay(self, now: int, is_free: IsFree) -> Outgoing | None:
        """The next event for a neighbour in the layer above that can take one (`is_free`) and has room."""
        uppers = {mule: upper for mule in self._paths if (upper := self._next_upper(mule, now, is_free)) is not None}
        if not uppers:
            return None
        copy = self.queue.first(lambda copy: any(self._is_sendable(copy, mule, now) for mule in uppers))
        if copy is None:
            return None
        mule = next(mule for mule in uppers if self._is_sendable(copy, mule, now))
        return Outgoing(uppers[mule], Relay(copy.event, copy.hops + 1, mule, copy.successes), copy)

    def pass_on(self) -> Outgoing | None:
        """The next transfer that does not wait in the queue."""
        return self.passing[0] if self.passing else None

    def sent(self, out: Outgoing, square: float, now: int) -> None:
        """A transfer was sent over this squared distance."""
        if out.copy is not None:
            out.copy.is_under_way = True
        if isinstance(out.transfer, Relay):
            self._last_upper = out.to
        self.account.pay_send(self._policy.event_bits, square)
        self.heads.paid(self.account.joules, now, self._spread)

    def receive(self, transfer: Transfer, now: int) -> str | None:
        """An event arrives. Returns None if the core takes it, or the rule by which it refuses."""
        self.account.pay_receive(self._policy.event_bits)
        self.heads.paid(self.account.joules, now, self._spread)
        match transfer:
            case Relay():
                return self._take_relayed(transfer, now)
            case PutBack():
                return self._take_put_back(transfer, now)
            case _:
                return "unwanted"

    def confirmed(self, out: Outgoing) -> None:
        """The receiver has taken a transfer."""
        copy = out.copy
        if copy is None:
            self.passing = [waiting for waiting in self.passing if waiting is not out]
            self.counts["passed_on"] += isinstance(out.transfer, Relay)
            return
        copy.is_under_way = False
        if copy.mule is not None:
            self.counts["passed_on"] += self._drop(lambda other: other is copy, None)
            return
        self.counts["by_owner"] += 1
        copy.sent_to.add(out.transfer.mule if isinstance(out.transfer, Relay) else out.to)
        copy.successes += 1
        if copy.successes > self._policy.alpha:
            self._drop(lambda other: other is copy, "spent")

    def refused(self, out: Outgoing, now: int) -> None:
        """The receiver has not taken a transfer, or it is unknown. What was passing stays here, if there is room."""
        if out.copy is not None:
            out.copy.is_under_way = False
        if out not in self.passing or self.queue.is_full:
            return
        self.passing = [waiting for waiting in self.passing if waiting is not out]
        match out.transfer:
            case Relay(event, hops, mule, successes) if mule in self._paths:
                self._add(Copy(event, now, mule, successes, hops - 1))
            case PutBack(event, hops, giver):
                self._keep(event, hops - 1, giver, now)
            case _:
                self._count_drop(out.transfer.event, "stranded")

    def is_wanted(self, out: Outgoing, now: int) -> bool:
        """Whether a transfer that was interrupted should go on."""
        copy = out.copy
        if copy is None:
            return out in self.passing
        mule = out.transfer.mule if isinstance(out.transfer, Relay) else out.to
        return copy in self.queue.copies and self._is_sendable(copy, mule, now)

    # What is behind these.

    def _take_relayed(self, relay: Relay, now: int) -> str | None:
        if relay.mule not in self._paths:
            return "stranded"
        if self.queue.is_full:
            return "full"
        if self._policy.relays_whole_way:
            upper = self._next_upper(relay.mule, now, lambda _: True)
            if upper is not None:
                onward = Relay(relay.event, relay.hops + 1, relay.mule, relay.successes)
                self.passing.append(Outgoing(upper, onward))
                self.counts["accepted"] += 1
                return None
        self._add(Copy(relay.event, now + self._policy.hold, relay.mule, relay.successes, relay.hops))
        self.counts["accepted"] += 1
        return None

    def _take_put_back(self, given: PutBack, now: int) -> str | None:
        if self.me not in given.route:
            return "unwanted"
        rest = given.route[given.route.index(self.me) + 1 :]
        if rest:
            onward = PutBack(given.event, given.hops + 1, given.giver, given.route)
            self.passing.append(Outgoing(rest[0], onward))
            return None
        if self.queue.is_full:
            return "full"
        self._keep(given.event, given.hops, given.giver, now)
        return None

    def _keep(self, event: FieldEvent, hops: int, giver: NodeId, now: int) -> None:
        """Keep an event that was put back as one's own."""
        self.counts["kept"] += 1
        self._add(Copy(event, now + self._policy.hold, hops=hops, sent_to={giver}))
        kept = Kept(event.id, event.expires)
        if self.heads.keep(kept):
            self._spread(kept)

    def _next_upper(self, mule: NodeId, now: int, is_free: IsFree) -> NodeId | None:
        """The next neighbour in the layer above that can take an event, round robin; None in layer 1."""
        layers = self._paths.layers(mule, now)
        above = layers.get(self.me, 1) - 1
        if above == 0:
            return None
        uppers = [other for other in self.community.neighbours[self.me] if layers.get(other) == above]
        able = [upper for upper in uppers if upper not in self._members.full and is_free(upper)]
        return min(able, key=lambda upper: (upper <= self._last_upper, upper), default=None)

    def _is_sendable(self, copy: Copy, mule: NodeId, now: int) -> bool:
        if copy.ready > now or copy.is_under_way or (copy.mule is not None and copy.mule != mule):
            return False
        return copy.mule == mule or (mule not in copy.sent_to and copy.event.id not in self._members.known_to(mule))

    def _answer(self, grant: Grant) -> None:
        self._tell(grant.mule, Answer(grant.number, grant.event, grant.route))

    def _learn(self, said: Path | Have, now: int) -> bool:
        """Note what a mule says. Returns whether it is news."""
        return self._paths.announce(said, now) if isinstance(said, Path) else self._members.learn(said)

    def _meet(self, mule: NodeId, member: NodeId, now: int) -> None:
        if self._paths.meet(mule, member, now) and self._policy.resend in ("contact", "missing"):
            self._forget(mule)

    def _lose(self, mule: NodeId, member: NodeId, now: int) -> None:
        if self._paths.lose(mule, member, now):
            self._members.forget(mule)
            if not self._policy.keeps_relayed:
                self._drop(lambda copy: copy.mule == mule, "stranded")

    def _forget(self, mule: NodeId) -> None:
        """Forget what the mule was sent."""
        for copy in self.queue.own():
            copy.sent_to.discard(mule)

    def _add(self, copy: Copy) -> None:
        self.queue.copies.append(copy)
        self._next_expiry = min(self._next_expiry, copy.event.expires)
        self._check_room()

    def _drop(self, should_drop: Callable[[Copy], bool], rule: str | None) -> int:
        """Remove copies, and return their number. With a rule they are counted: relayed ones as `stranded`."""
        removed = self.queue.remove(should_drop)
        for copy in removed:
            if rule is not None:
                self._count_drop(copy.event, "stranded" if copy.mule is not None else rule)
        if removed:
            self._check_room()
        return len(removed)

    def _count_drop(self, event: FieldEvent, rule: str) -> None:
        self.counts[rule] += 1
        self.effects.append(Dropped(event, rule))

    def _check_room(self) -> None:
        if self.queue.is_full != (self.me in self._members.full):
            self._announce_status()

    def _announce_status(self) -> None:
        self._version += 1
        status = Status(self.me, self._version, tuple(sorted(self._reach)), self.queue.is_full)
        self._members.update(status)
        self._spread(status)

    def _spread(self, note: Note) -> None:
        self.effects.append(Spread(note))

    def _tell(self, to: NodeId, message: Message) -> None:
        self.effects.append(Tell(to, message))
