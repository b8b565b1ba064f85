"""CET, by the letter."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from roamcast.collect.simulation.protocols import CET
from roamcast.collect.simulation.reference.communities import Tree, communities, layers, neighbours
from roamcast.collect.simulation.reference.geometry import cell_of_point
from roamcast.collect.simulation.reference.queues import Copy, Queue
from roamcast.collect.simulation.reference.run import Run

__all__ = ["Community", "CommunityTransmission"]

RELAY_TURN = 0x9E3779B1
"""Which sensor relays first changes from tick to tick."""


@dataclass
class Community:
    """Sensors that hear each other. `size` is in cells; one sensor alone is a loner."""

    members: list[int]
    size: int
    head: int
    tree: Tree
    head_for_good: bool = False
    turn: int = 0
    contacts: list[int] = field(default_factory=list)
    """Mules in contact, in the order in which they came."""
    kept_here: set[int] = field(default_factory=set)

    @property
    def is_loner(self) -> bool:
        return len(self.members) == 1


@dataclass
class Stored:
    """What a mule carries and may put back."""

    event: int
    hops: int


class CommunityTransmission:
    """Collection along path sets (3.2.1), put-back (3.2.2) and the queue rules (3.3)."""

    def __init__(self, run: Run, rules: CET) -> None:
        self._run, self._rules = run, rules
        world = run.world
        self._near = neighbours(world)
        self.communities = [self._found(members) for members in communities(self._near)]
        self._of = {sensor: c for c in self.communities for sensor in c.members}
        self.queues = [Queue(rules.K, by_successes=True) for _ in range(world.field.sensors)]
        self.layers: dict[tuple[int, int], dict[int, int]] = {}
        """By mule and the first member of a community it is in contact with: the path set."""
        self._legs = dict.fromkeys(range(world.field.mules), -1)
        self.stored: dict[int, list[Stored]] = {mule: [] for mule in range(world.field.mules)}
        self._last_sender = dict.fromkeys(range(world.field.mules), -1)
        self._upper_turn: dict[int, int] = defaultdict(lambda: -1)
        self._gifts = dict.fromkeys(range(world.field.mules), 0)
        self._quiet = -1 if run.is_instant else round(rules.quiet_s * run.clock.rate)
        self._heard = dict.fromkeys(range(world.field.mules), -self._quiet)
        self._one_sent, self._one_got = run.sends_one(rules.rate_per), run.takes_one(rules.rate_per)
        self._one_hop = rules.hand_up == "hop" and not run.is_instant
        self._sent: set[int] = set()
        self._got: set[int] = set()
        self._links_used: set[tuple[int, int]] = set()

    def begin_tick(self) -> None:
        run = self._run
        for mule in range(run.world.field.mules):
            here = {sensor: self._of[sensor] for sensor in run.in_reach(mule)}
            leg, _, _ = run.leg(mule)
            is_new_path = leg != self._legs[mule]
            self._legs[mule] = leg
            for community in self.communities:
                in_touch = any(c is community for c in here.values())
                if mule in community.contacts and not in_touch:
                    self._part(mule, community)
                    continue
                is_first = in_touch and mule not in community.contacts
                if is_first:
                    community.contacts.append(mule)
                    if self._rules.resend == "contact" or self._rules.resend == "missing":
                        self._forget(mule, community)
                if in_touch:
                    self._lay_paths(mule, community, is_announced=is_first or is_new_path)

    def born(self, event: int) -> None:
        self._expire()
        queue = self.queues[self._run.world.births.sensor[event]]
        if queue.is_full:
            self._run.counts["full"] += 1
        else:
            queue.copies.append(Copy(event, self._run.now - 1))

    def step(self) -> bool:
        before = len(self._run.transfers)
        self._sent, self._got, self._links_used = set(), set(), set()
        self._expire()
        mules = range(self._run.world.field.mules)
        for mule in mules:
            self._collect(mule)
        sensors = range(self._run.world.field.sensors)
        first = self._run.now * RELAY_TURN % len(sensors)
        for sensor in (*sensors[first:], *sensors[:first]):
            while self._relay(sensor) and self._one_hop and not self._one_sent:
                pass
        if self._rules.put_back:
            for mule in mules:
                self._put_back(mule)
        return len(self._run.transfers) > before

    def _found(self, members: list[int]) -> Community:
        world, head = self._run.world, members[0]
        size = len({cell_of_point(world, float(world.x[s]), float(world.y[s])) for s in members})
        return Community(members, size, head, Tree(self._near, head, world.seed))

    def _lay_paths(self, mule: int, community: Community, *, is_announced: bool) -> None:
        key = mule, community.members[0]
        ahead = self._run.ahead(mule) & set(community.members)
        if self._rules.lost_root == "rebuild" or is_announced:
            self.layers[key] = layers(self._near, ahead)
            return
        kept = {sensor: layer for sensor, layer in self.layers[key].items() if layer > 1 or sensor in ahead}
        for depth in range(2, len(kept) + 2):
            cut = [s for s, at in kept.items() if at == depth and not self._above(kept, s)]
            for sensor in cut:
                del kept[sensor]
        self.layers[key] = kept

    def _above(self, layer: dict[int, int], sensor: int) -> list[int]:
        return [other for other in self._near[sensor] if layer.get(other) == layer[sensor] - 1]

    def _part(self, mule: int, community: Community) -> None:
        """The contact is over: what was on its way up to this mule goes, or waits for it."""
        community.contacts.remove(mule)
        del self.layers[mule, community.members[0]]
        if self._rules.left_behind == "waits":
            return
        for sensor in community.members:
            self._run.counts["stranded"] += len(self.queues[sensor].take_out(lambda copy: copy.mule == mule))

    def _forget(self, mule: int, community: Community) -> None:
        for sensor in community.members:
            for copy in self.queues[sensor].own():
                copy.sent_to.discard(mule)

    def _may_go(self, copy: Copy, mule: int) -> bool:
        if copy.mule is not None:
            ready = copy.mule == mule
        else:
            known = self._rules.resend == "missing" and (mule, copy.event) in self._run.known
            ready = mule not in copy.sent_to and not known
        return ready and (copy.arrived < self._run.now or self._run.is_instant)

    def _collect(self, mule: int) -> None:
        """A mule takes an event from one of the sensors in reach, in turn; or one from each."""
        in_reach, last = self._run.in_reach(mule), self._last_sender[mule]
        for sensor in [s for s in in_reach if s > last] + [s for s in in_reach if s <= last]:
            if sensor in self._sent and self._one_sent:
                continue
            copy = self.queues[sensor].first(lambda copy: self._may_go(copy, mule))
            if copy is None:
                continue
            self._hand_over(sensor, mule, copy)
            if self._one_got:
                return

    def _hand_over(self, sensor: int, mule: int, copy: Copy) -> None:
        run, rules = self._run, self._rules
        is_new = (mule, copy.event) not in run.known
        is_wanted = run.hand_over(sensor, mule, copy.event, copy.hops + 1)
        is_stored = is_wanted or (is_new and rules.stores == "all")
        if is_stored and self._of[run.world.births.sensor[copy.event]].size <= rules.gamma:
            self.stored[mule].append(Stored(copy.event, copy.hops + 1))
        self._elect(sensor)
        self._forwarded(sensor, copy, mule)
        self._last_sender[mule] = sensor
        self._heard[mule] = run.now

    def _relay(self, sensor: int) -> bool:
        """A sensor hands one event up to the layer above. Whether it did."""
        community = self._of[sensor]
        if sensor in self._sent and self._one_sent:
            return False
        home = community.members[0]
        paths = {mule: self.layers[mule, home] for mule in community.contacts}
        ways = [
            m for m, layer in paths.items() if layer.get(sensor, 1) > 1 and self._next_upper(layer, sensor) is not None
        ]
        copy = self.queues[sensor].first(lambda copy: any(self._may_go(copy, mule) for mule in ways))
        if copy is None:
            return False
        mule = next(mule for mule in ways if self._may_go(copy, mule))
        self._hand_up(sensor, copy, mule, paths[mule])
        return True

    def _hand_up(self, sensor: int, copy: Copy, mule: int, layer: dict[int, int]) -> None:
        """By one hop; or to layer 1, as far as there is room."""
        here, hops = sensor, copy.hops
        while (upper := self._next_upper(layer, here)) is not None:
            self._upper_turn[here] = upper
            self._links_used.add((here, upper))
            self._hop(here, upper, copy.event)
            here, hops = upper, hops + 1
            if self._rules.hand_up == "hop" or layer[here] == 1:
                break
        self._got.add(here)
        self.queues[here].copies.append(Copy(copy.event, self._run.now, mule, copy.successes, hops))
        self._forwarded(sensor, copy, mule)

    def _next_upper(self, layer: dict[int, int], sensor: int) -> int | None:
        """Round robin over those above that can take an event now."""
        above = self._above(layer, sensor)
        last = self._upper_turn[sensor]
        for upper in [u for u in above if u > last] + [u for u in above if u <= last]:
            is_used = upper in self._got if self._one_got else (sensor, upper) in self._links_used
            if not self.queues[upper].is_full and not (is_used and self._one_hop):
                return upper
        return None

    def _forwarded(self, sensor: int, copy: Copy, mule: int) -> None:
        """The owner keeps its copy and counts a success; a relayed copy is gone."""
        self._sent.add(sensor)
        queue = self.queues[sensor]
        if copy.mule is not None:
            queue.copies.remove(copy)
            return
        self._run.counts["by_owner"] += 1
        copy.sent_to.add(mule)
        copy.successes += 1
        if copy.successes > self._rules.alpha:
            queue.copies.remove(copy)
            self._run.counts["spent"] += 1

    def _put_back(self, mule: int) -> None:
        """A mule that hears nothing gives one event to a community."""
        run = self._run
        if run.now - self._heard[mule] < self._quiet:
            return
        for stored in [s for s in self.stored[mule] if run.is_expired(s.event)]:
            self.stored[mule].remove(stored)
        here = [c for c in self.communities if mule in c.contacts and not c.is_loner]
        for community in here:
            in_reach = [s for s in run.in_reach(mule) if s in community.members]
            ready = [s for s in in_reach if not (s in self._got and self._one_got)]
            keeper = self._keeper(community)
            wanted = [s for s in self.stored[mule] if self._takes(community, s.event)]
            if not (ready and wanted and keeper is not None):
                continue
            gift = max(wanted, key=lambda stored: stored.event)
            if self._rules.gives == "moves":
                self.stored[mule].remove(gift)
            receiver = ready[self._gifts[mule] % len(ready)]
            self._gifts[mule] += 1
            self._keep(mule, community, gift, receiver, keeper)
            return

    def _takes(self, community: Community, event: int) -> bool:
        is_origin = self._run.world.births.sensor[event] in community.members
        return not is_origin and event not in community.kept_here

    def _keeper(self, community: Community) -> int | None:
        order = community.tree.order
        for step in range(len(order)):
            sensor = order[(community.turn + step) % len(order)]
            if not self.queues[sensor].is_full:
                return sensor
        return None

    def _keep(self, mule: int, community: Community, gift: Stored, receiver: int, keeper: int) -> None:
        run = self._run
        order = community.tree.order
        community.turn = (order.index(keeper) + 1) % len(order)
        way = community.tree.path(receiver, keeper)
        run.log(run.name(mule), receiver, gift.event)
        self._got.add(receiver)
        run.counts["put_back"] += 1
        copy = Copy(gift.event, run.now, hops=gift.hops + len(way), sent_to={mule})
        self.queues[keeper].copies.append(copy)
        community.kept_here.add(gift.event)
        self._pay(receiver, run.radio.receive(run.world.field.event_bits))
        for a, b in pairwise(way):
            self._hop(a, b, gift.event)

    def _hop(self, sender: int, receiver: int, event: int) -> None:
        bits = self._run.world.field.event_bits
        self._run.log(sender, receiver, event)
        self._pay(sender, self._run.radio.send(bits, self._run.between(sender, receiver)))
        self._pay(receiver, self._run.radio.receive(bits))

    def _pay(self, sensor: int, joules: float) -> None:
        self._run.pay(sensor, joules)
        self._elect(sensor)

    def _elect(self, paid: int) -> None:
        """A head that falls below theta makes way for the one with most energy; one that has less itself then stays."""
        community, energy = self._of[paid], self._run.energy
        if community.head != paid or energy[paid] >= self._rules.theta:
            return
        if community.is_loner or community.head_for_good:
            return
        community.head = max(community.members, key=lambda sensor: (energy[sensor], -sensor))
        community.head_for_good = energy[community.head] < self._rules.theta
        community.tree = Tree(self._near, community.head, self._run.world.seed)
        community.turn = 0
        self._run.counts["elections"] += 1

    def _expire(self) -> None:
        for queue in self.queues:
            gone = queue.take_out(lambda copy: self._run.is_expired(copy.event))
            self._run.counts["expired"] += sum(copy.mule is None for copy in gone)
            self._run.counts["stranded"] += sum(copy.mule is not None for copy in gone)
