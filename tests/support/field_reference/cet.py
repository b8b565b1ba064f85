"""Reference implementation of CET."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from field_reference.communities import HeadTree, communities, layers, neighbours
from field_reference.geometry import cell_of_point
from field_reference.queues import Copy, CopyQueue
from field_reference.run import ReferenceRun
from roamcast.collect.simulation.protocols import CET

__all__ = ["Community", "ReferenceCET"]

SENDER_STEP = 0x9E3779B1
"""The sensor that relays first changes from tick to tick by this step."""


@dataclass
class Community:
    """Connected sensors. `size` is the number of cells."""

    members: list[int]
    size: int
    head: int
    tree: HeadTree
    head_fixed: bool = False
    next_keeper: int = 0
    mules_in_contact: list[int] = field(default_factory=list)
    """In order of arrival."""
    put_back_here: set[int] = field(default_factory=set)

    @property
    def is_isolated(self) -> bool:
        return len(self.members) == 1


@dataclass
class CarriedEvent:
    """An event that a mule carries and may put back."""

    event: int
    hops: int


class ReferenceCET:
    """Collection along path sets (section 3.2.1), put-back (3.2.2) and queue rules (3.3)."""

    def __init__(self, run: ReferenceRun, protocol: CET) -> None:
        self._run, self._protocol = run, protocol
        world = run.world
        self._near = neighbours(world)
        self.communities = [self._make_community(members) for members in communities(self._near)]
        self._of = {sensor: c for c in self.communities for sensor in c.members}
        self.queues = [CopyQueue(protocol.K, by_successes=True) for _ in range(world.field.sensors)]
        self.layers: dict[tuple[int, int], dict[int, int]] = {}
        """The path set for each mule and community (its first member) in contact."""
        self._legs = dict.fromkeys(range(world.field.mules), -1)
        self.stored: dict[int, list[CarriedEvent]] = {mule: [] for mule in range(world.field.mules)}
        self._last_sender = dict.fromkeys(range(world.field.mules), -1)
        self._upper_turn: dict[int, int] = defaultdict(lambda: -1)
        self._put_back_count = dict.fromkeys(range(world.field.mules), 0)
        self._quiet = -1 if run.is_instant else round(protocol.quiet_s * run.clock.rate)
        self._last_received = dict.fromkeys(range(world.field.mules), -self._quiet)
        self._one_sent, self._one_received = run.sends_one(protocol.rate_per), run.takes_one(protocol.rate_per)
        self._one_hop = protocol.hand_up == "hop" and not run.is_instant
        self._senders: set[int] = set()
        self._receivers: set[int] = set()
        self._links_used: set[tuple[int, int]] = set()

    def begin_tick(self) -> None:
        run = self._run
        for mule in range(run.world.field.mules):
            reached = {sensor: self._of[sensor] for sensor in run.in_reach(mule)}
            leg, _, _ = run.leg(mule)
            is_new_path = leg != self._legs[mule]
            self._legs[mule] = leg
            for community in self.communities:
                in_touch = any(c is community for c in reached.values())
                if mule in community.mules_in_contact and not in_touch:
                    self._end_contact(mule, community)
                    continue
                is_first = in_touch and mule not in community.mules_in_contact
                if is_first:
                    community.mules_in_contact.append(mule)
                    if self._protocol.resend == "contact" or self._protocol.resend == "missing":
                        self._forget(mule, community)
                if in_touch:
                    self._build_path_set(mule, community, is_announced=is_first or is_new_path)

    def create(self, event: int) -> None:
        self._expire()
        queue = self.queues[self._run.world.events.sensor[event]]
        if queue.is_full:
            self._run.counts["full"] += 1
        else:
            queue.copies.append(Copy(event, self._run.now - 1))

    def step(self) -> bool:
        before = len(self._run.transfers)
        self._senders, self._receivers, self._links_used = set(), set(), set()
        self._expire()
        mules = range(self._run.world.field.mules)
        for mule in mules:
            self._collect(mule)
        sensors = range(self._run.world.field.sensors)
        first = self._run.now * SENDER_STEP % len(sensors)
        for sensor in (*sensors[first:], *sensors[:first]):
            while self._relay(sensor) and self._one_hop and not self._one_sent:
                pass
        if self._protocol.put_back:
            for mule in mules:
                self._put_back(mule)
        return len(self._run.transfers) > before

    def _make_community(self, members: list[int]) -> Community:
        world, head = self._run.world, members[0]
        size = len({cell_of_point(world, float(world.x[s]), float(world.y[s])) for s in members})
        return Community(members, size, head, HeadTree(self._near, head, world.seed))

    def _build_path_set(self, mule: int, community: Community, *, is_announced: bool) -> None:
        key = mule, community.members[0]
        ahead = self._run.ahead(mule) & set(community.members)
        if self._protocol.lost_root == "rebuild" or is_announced:
            self.layers[key] = layers(self._near, ahead)
            return
        kept = {sensor: layer for sensor, layer in self.layers[key].items() if layer > 1 or sensor in ahead}
        for depth in range(2, len(kept) + 2):
            cut = [s for s, at in kept.items() if at == depth and not self._upper(kept, s)]
            for sensor in cut:
                del kept[sensor]
        self.layers[key] = kept

    def _upper(self, layer: dict[int, int], sensor: int) -> list[int]:
        return [other for other in self._near[sensor] if layer.get(other) == layer[sensor] - 1]

    def _end_contact(self, mule: int, community: Community) -> None:
        """The contact has ended: drop the copies relayed to this mule, unless they wait for it."""
        community.mules_in_contact.remove(mule)
        del self.layers[mule, community.members[0]]
        if self._protocol.left_behind == "waits":
            return
        for sensor in community.members:
            self._run.counts["stranded"] += len(self.queues[sensor].remove(lambda copy: copy.mule == mule))

    def _forget(self, mule: int, community: Community) -> None:
        for sensor in community.members:
            for copy in self.queues[sensor].own():
                copy.sent_to.discard(mule)

    def _is_sendable(self, copy: Copy, mule: int) -> bool:
        if copy.mule is not None:
            ready = copy.mule == mule
        else:
            known = self._protocol.resend == "missing" and (mule, copy.event) in self._run.known
            ready = mule not in copy.sent_to and not known
        return ready and (copy.arrived < self._run.now or self._run.is_instant)

    def _collect(self, mule: int) -> None:
        """Collect from the sensors in reach, round robin: one event, or one from each."""
        in_reach, last = self._run.in_reach(mule), self._last_sender[mule]
        for sensor in [s for s in in_reach if s > last] + [s for s in in_reach if s <= last]:
            if sensor in self._senders and self._one_sent:
                continue
            copy = self.queues[sensor].first(lambda copy: self._is_sendable(copy, mule))
            if copy is None:
                continue
            self._give_to_mule(sensor, mule, copy)
            if self._one_received:
                return

    def _give_to_mule(self, sensor: int, mule: int, copy: Copy) -> None:
        run, protocol = self._run, self._protocol
        is_new = (mule, copy.event) not in run.known
        is_wanted = run.give_to_mule(sensor, mule, copy.event, copy.hops + 1)
        is_stored = is_wanted or (is_new and protocol.stores == "all")
        if is_stored and self._of[run.world.events.sensor[copy.event]].size <= protocol.gamma:
            self.stored[mule].append(CarriedEvent(copy.event, copy.hops + 1))
        self._elect(sensor)
        self._mark_forwarded(sensor, copy, mule)
        self._last_sender[mule] = sensor
        self._last_received[mule] = run.now

    def _relay(self, sensor: int) -> bool:
        """Relay one event to the layer above. Returns whether one was relayed."""
        community = self._of[sensor]
        if sensor in self._senders and self._one_sent:
            return False
        home = community.members[0]
        paths = {mule: self.layers[mule, home] for mule in community.mules_in_contact}
        reachable = [
            m for m, layer in paths.items() if layer.get(sensor, 1) > 1 and self._next_upper(layer, sensor) is not None
        ]
        copy = self.queues[sensor].first(lambda copy: any(self._is_sendable(copy, mule) for mule in reachable))
        if copy is None:
            return False
        mule = next(mule for mule in reachable if self._is_sendable(copy, mule))
        self._relay_copy(sensor, copy, mule, paths[mule])
        return True

    def _relay_copy(self, sensor: int, copy: Copy, mule: int, layer: dict[int, int]) -> None:
        """Relay by one hop, or towards layer 1 as far as there is room."""
        here, hops = sensor, copy.hops
        while (upper := self._next_upper(layer, here)) is not None:
            self._upper_turn[here] = upper
            self._links_used.add((here, upper))
            self._hop(here, upper, copy.event)
            here, hops = upper, hops + 1
            if self._protocol.hand_up == "hop" or layer[here] == 1:
                break
        self._receivers.add(here)
        self.queues[here].copies.append(Copy(copy.event, self._run.now, mule, copy.successes, hops))
        self._mark_forwarded(sensor, copy, mule)

    def _next_upper(self, layer: dict[int, int], sensor: int) -> int | None:
        """The next upper neighbour that can take an event now, round robin."""
        above = self._upper(layer, sensor)
        last = self._upper_turn[sensor]
        for upper in [u for u in above if u > last] + [u for u in above if u <= last]:
            is_used = upper in self._receivers if self._one_received else (sensor, upper) in self._links_used
            if not self.queues[upper].is_full and not (is_used and self._one_hop):
                return upper
        return None

    def _mark_forwarded(self, sensor: int, copy: Copy, mule: int) -> None:
        """Count a success of an owner's copy, or remove a relayed copy."""
        self._senders.add(sensor)
        queue = self.queues[sensor]
        if copy.mule is not None:
            queue.copies.remove(copy)
            return
        self._run.counts["by_owner"] += 1
        copy.sent_to.add(mule)
        copy.successes += 1
        if copy.successes > self._protocol.alpha:
            queue.copies.remove(copy)
            self._run.counts["spent"] += 1

    def _put_back(self, mule: int) -> None:
        """Put back one event, if the mule has received nothing for a while."""
        run = self._run
        if run.now - self._last_received[mule] < self._quiet:
            return
        for expired in [c for c in self.stored[mule] if run.is_expired(c.event)]:
            self.stored[mule].remove(expired)
        here = [c for c in self.communities if mule in c.mules_in_contact and not c.is_isolated]
        for community in here:
            in_reach = [s for s in run.in_reach(mule) if s in community.members]
            ready = [s for s in in_reach if not (s in self._receivers and self._one_received)]
            keeper = self._keeper(community)
            accepted = [c for c in self.stored[mule] if self._accepts(community, c.event)]
            if not (ready and accepted and keeper is not None):
                continue
            carried = max(accepted, key=lambda carried: carried.event)
            if self._protocol.gives == "moves":
                self.stored[mule].remove(carried)
            receiver = ready[self._put_back_count[mule] % len(ready)]
            self._put_back_count[mule] += 1
            self._send_to_keeper(mule, community, carried, receiver, keeper)
            return

    def _accepts(self, community: Community, event: int) -> bool:
        is_origin = self._run.world.events.sensor[event] in community.members
        return not is_origin and event not in community.put_back_here

    def _keeper(self, community: Community) -> int | None:
        order = community.tree.order
        for step in range(len(order)):
            sensor = order[(community.next_keeper + step) % len(order)]
            if not self.queues[sensor].is_full:
                return sensor
        return None

    def _send_to_keeper(
        self, mule: int, community: Community, carried: CarriedEvent, receiver: int, keeper: int
    ) -> None:
        run = self._run
        order = community.tree.order
        community.next_keeper = (order.index(keeper) + 1) % len(order)
        way = community.tree.path(receiver, keeper)
        run.log(run.name(mule), receiver, carried.event)
        self._receivers.add(receiver)
        run.counts["put_back"] += 1
        copy = Copy(carried.event, run.now, hops=carried.hops + len(way), sent_to={mule})
        self.queues[keeper].copies.append(copy)
        community.put_back_here.add(carried.event)
        self._pay(receiver, run.radio.receive(run.world.field.event_bits))
        for a, b in pairwise(way):
            self._hop(a, b, carried.event)

    def _hop(self, sender: int, receiver: int, event: int) -> None:
        bits = self._run.world.field.event_bits
        self._run.log(sender, receiver, event)
        self._pay(sender, self._run.radio.send(bits, self._run.between(sender, receiver)))
        self._pay(receiver, self._run.radio.receive(bits))

    def _pay(self, sensor: int, joules: float) -> None:
        self._run.pay(sensor, joules)
        self._elect(sensor)

    def _elect(self, paid: int) -> None:
        """Replace a head below theta by the member with most energy. If that is below theta too, it stays."""
        community, energy = self._of[paid], self._run.energy
        if community.head != paid or energy[paid] >= self._protocol.theta:
            return
        if community.is_isolated or community.head_fixed:
            return
        community.head = max(community.members, key=lambda sensor: (energy[sensor], -sensor))
        community.head_fixed = energy[community.head] < self._protocol.theta
        community.tree = HeadTree(self._near, community.head, self._run.world.seed)
        community.next_keeper = 0
        self._run.counts["elections"] += 1

    def _expire(self) -> None:
        for queue in self.queues:
            expired = queue.remove(lambda copy: self._run.is_expired(copy.event))
            self._run.counts["expired"] += sum(copy.mule is None for copy in expired)
            self._run.counts["stranded"] += sum(copy.mule is not None for copy in expired)
