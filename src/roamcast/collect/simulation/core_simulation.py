"""Simulates a field with the cores that field nodes and mules run, over an ideal link: one transfer for each tick.

Slow and simple. `simulate` does the same with compiled kernels, and equals it bit for bit.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from math import inf, isfinite

from roamcast.collect.protocol.communities import Cell, Community, find_communities, neighbours_of
from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.events import CopyQueue, FieldEvent
from roamcast.collect.protocol.messages import Collected, Effect, Outgoing, Spread, Stop, Tell
from roamcast.collect.protocol.mule_core import MuleCore
from roamcast.collect.protocol.node_core import NodeCore
from roamcast.collect.protocol.policy import CollectPolicy
from roamcast.collect.protocol.rules import CET, DG, Epidemic, Protocol, SprayAndWait
from roamcast.collect.protocol.spray_core import SprayCore, Sprayed
from roamcast.collect.simulation.contacts import Contacts
from roamcast.collect.simulation.core_run import CoreRun, Cores
from roamcast.collect.simulation.field import FieldWorld
from roamcast.collect.simulation.results import SimulationResult
from roamcast.collect.simulation.schedule import Occurrence, make_schedule

__all__ = ["simulate_cores"]


def simulate_cores(
    world: FieldWorld,
    protocol: Protocol,
    radio: Radio | None = None,
    *,
    contacts: Contacts | None = None,
    until_death: bool = False,
) -> SimulationResult:
    """Like `simulate`, with all transfers logged."""
    schedule = make_schedule(world, contacts)
    run = CoreRun(world._replace(legs=schedule.legs), schedule, radio or Radio(), protocol.beta)
    cores: Cores
    if isinstance(protocol, CET | DG):
        cores = _CollectCores(run, protocol, knows_cells=contacts is None)
    else:
        cores = _SprayCores(run, protocol)
    run.run(cores, until_death=until_death)
    return run.result(cores)


class _CollectCores:
    """Sensors and mules of CET or direct gathering. What they tell each other arrives at once."""

    def __init__(self, run: CoreRun, protocol: CET | DG, *, knows_cells: bool) -> None:
        self._run, self._protocol, self._knows_cells = run, protocol, knows_cells
        field = run.field
        policy = CollectPolicy.of(protocol, run.schedule.clock.rate, field.event_bits, hold=run.hold)
        if isinstance(protocol, CET):
            communities = find_communities(run.cells)
        else:
            communities = [Community({sensor: cell}) for sensor, cell in run.cells.items()]
        home = {member: community for community in communities for member in community.members}
        run.origin = {sensor: (home[sensor].id, home[sensor].size) for sensor in home}
        self._nodes = [
            NodeCore(sensor, home[sensor], policy, run.accounts[sensor], seed=run.world.seed) for sensor in sorted(home)
        ]
        self._mules = [MuleCore(field.sensors + mule, policy, run.wants(mule)) for mule in range(field.mules)]
        self._cores: list[NodeCore | MuleCore] = [*self._nodes, *self._mules]
        self._puts_back = policy.put_back
        limited, rate_per = not run.is_instant, protocol.rate_per
        self._one_sent = limited and rate_per in ("node", "sender")
        self._one_received = limited and rate_per in ("node", "receiver")
        self._one_hop = limited and not policy.relays_whole_way
        self._senders: set[int] = set()
        self._receivers: set[int] = set()
        self._links: set[tuple[int, int]] = set()

    @property
    def queues(self) -> Iterable[CopyQueue]:
        return (node.queue for node in self._nodes)

    @property
    def counts(self) -> Counter[str]:
        total = Counter[str]()
        for core in self._cores:
            total.update(core.counts)
        total["elections"] = sum(node.heads.elections for node in self._nodes)
        return total

    def advance(self) -> None:
        for core in self._cores:
            core.advance(self._run.now)
            self._settle(core)

    def occur(self, kind: Occurrence, mule: int, target: int) -> None:
        now, core = self._run.now, self._mules[mule]
        if kind == Occurrence.NEW_LEG:
            core.take_path(tuple(self._stops(target)))
        elif kind == Occurrence.ENTER:
            core.enter_cell()
        elif kind == Occurrence.UP:
            self._nodes[target].contact_begins(core.me, now)
        else:
            core.contact_ends(target)
            self._nodes[target].contact_ends(core.me, now)
        self._settle(core)
        if kind in (Occurrence.UP, Occurrence.DOWN):
            self._settle(self._nodes[target])

    def create(self, sensor: int, event: FieldEvent) -> None:
        self._nodes[sensor].sense(event, self._run.now)
        self._settle(self._nodes[sensor])

    def step(self) -> bool:
        before = len(self._run.transfers)
        self._senders, self._receivers, self._links = set(), set(), set()
        for mule in self._mules:
            self._collect(mule)
        for sensor in self._run.senders(len(self._nodes)):
            while self._relay(sensor) and self._one_hop and not self._one_sent:
                pass
        if self._puts_back:
            for mule in self._mules:
                self._put_back(mule)
        return len(self._run.transfers) > before

    def _stops(self, leg: int) -> Iterator[Stop]:
        """Where a mule is in reach on a leg: of cells, or, if only contacts are given, of sensors."""
        schedule = self._run.schedule
        stops = set()
        for row in schedule.leg_contact[schedule.leg_first[leg] : schedule.leg_first[leg + 1]]:
            sensor = int(schedule.sensor[row])
            place: Cell | int = self._run.cells[sensor] if self._knows_cells else sensor
            stops.add((place, int(schedule.begin[row]), int(schedule.until[row])))
        return (Stop(*stop) for stop in stops)

    def _collect(self, mule: MuleCore) -> None:
        """Collect from the sensors in reach, round robin: one event, or one from each."""
        for sensor in mule.poll_order():
            if sensor in self._senders and self._one_sent:
                continue
            out = self._nodes[sensor].poll(mule.me, self._run.now)
            if out is not None:
                self._carry(self._nodes[sensor], out)
                self._senders.add(sensor)
                if self._one_received:
                    return

    def _relay(self, sensor: int) -> bool:
        """Relay one event to the layer above. Returns whether one was relayed."""
        if sensor in self._senders and self._one_sent:
            return False
        out = self._nodes[sensor].relay(self._run.now, lambda upper: self._can_receive(sensor, upper))
        if out is None:
            return False
        self._links.add((sensor, out.to))
        self._senders.add(sensor)
        self._receivers.add(self._carry(self._nodes[sensor], out))
        return True

    def _can_receive(self, sensor: int, upper: int) -> bool:
        if not self._one_hop:
            return True
        return upper not in self._receivers if self._one_received else (sensor, upper) not in self._links

    def _put_back(self, mule: MuleCore) -> None:
        mule.offer(self._run.now, lambda sensor: not (sensor in self._receivers and self._one_received))
        self._settle(mule)
        out = mule.put_back()
        if out is not None:
            self._carry(mule, out)
            self._receivers.add(out.to)

    def _carry(self, sender: NodeCore | MuleCore, out: Outgoing) -> int:
        """Carry a transfer, and what the receiver passes on at once. Returns the last receiver."""
        self._carry_one(sender, out)
        while out.to < len(self._nodes) and (onward := self._nodes[out.to].pass_on()) is not None:
            self._carry_one(self._nodes[out.to], onward)
            out = onward
        return out.to

    def _carry_one(self, sender: NodeCore | MuleCore, out: Outgoing) -> None:
        run, transfer = self._run, out.transfer
        run.log(sender.me, out.to, transfer.event)
        if isinstance(sender, NodeCore):
            sender.sent(out, run.square(sender.me, out.to), run.now)
            run.check_death(sender.me)
            self._settle(sender)
        else:
            sender.sent(out)
        if out.to < len(self._nodes):
            receiver = self._nodes[out.to]
            refusal = receiver.receive(transfer, run.now)
            run.check_death(out.to)
            self._settle(receiver)
        else:
            mule = self._mules[out.to - len(self._nodes)]
            refusal = mule.receive(sender.me, transfer, run.now)
            self._settle(mule)
        if refusal is not None:
            raise AssertionError(f"over an ideal link nothing is refused: {refusal}")
        sender.confirmed(out)
        self._settle(sender)

    def _settle(self, core: NodeCore | MuleCore) -> None:
        """Carry out the effects of a core, and those of the cores that they reach."""
        pending: deque[tuple[int, Effect]] = deque()
        self._take_effects(core, pending)
        while pending:
            source, effect = pending.popleft()
            match effect:
                case Tell(to, message) if to < len(self._nodes):
                    self._nodes[to].hear(source, message, self._run.now)
                    self._take_effects(self._nodes[to], pending)
                case Tell(to, message):
                    mule = self._mules[to - len(self._nodes)]
                    mule.hear(source, message)
                    self._take_effects(mule, pending)
                case Spread(note):
                    for member in self._nodes[source].community.members:
                        if member != source:
                            self._nodes[member].note(note, self._run.now)
                            self._take_effects(self._nodes[member], pending)
                case Collected(event, hops):
                    self._run.deliver(source - len(self._nodes), event, hops)

    def _take_effects(self, core: NodeCore | MuleCore, pending: deque[tuple[int, Effect]]) -> None:
        if core.effects:
            pending.extend((core.me, effect) for effect in core.effects)
            core.effects.clear()


class _SprayCores:
    """Sensors and mules of Epidemic or Spray-and-Wait."""

    def __init__(self, run: CoreRun, protocol: Epidemic | SprayAndWait) -> None:
        self._run, field = run, run.field
        copies = protocol.L if isinstance(protocol, SprayAndWait) else None
        self._cores = [SprayCore(protocol.K, copies, None, hold=run.hold) for _ in range(field.sensors)]
        self._cores += [SprayCore(inf, copies, run.wants(mule), hold=run.hold) for mule in range(field.mules)]
        self._counts = Counter[str]()
        for sensor, others in neighbours_of(run.cells).items():
            for other in others:
                self._cores[sensor].contact_begins(other)
        for sensor in range(field.sensors):
            self._settle(sensor)

    @property
    def queues(self) -> Iterable[CopyQueue]:
        return (core.queue for core in self._cores[: self._run.field.sensors])

    @property
    def counts(self) -> Counter[str]:
        total = Counter(self._counts)
        for core in self._cores[: self._run.field.sensors]:
            total.update(core.counts)
        return total

    def advance(self) -> None:
        for node, core in enumerate(self._cores):
            core.advance(self._run.now)
            self._settle(node)

    def occur(self, kind: Occurrence, mule: int, target: int) -> None:
        node = self._run.field.sensors + mule
        if kind in (Occurrence.UP, Occurrence.DOWN):
            for one, other in ((node, target), (target, node)):
                core = self._cores[one]
                (core.contact_begins if kind == Occurrence.UP else core.contact_ends)(other)
                self._settle(one)

    def create(self, sensor: int, event: FieldEvent) -> None:
        self._cores[sensor].sense(event, self._run.now)
        self._settle(sensor)

    def step(self) -> bool:
        before = len(self._run.transfers)
        receivers: set[int] = set()
        is_limited = isfinite(self._run.schedule.clock.rate)
        for node in self._run.senders(len(self._cores)):
            sprayed = self._cores[node].next_transfer(self._run.now, lambda other: other not in receivers)
            if sprayed is not None:
                self._carry(node, sprayed)
                if is_limited:
                    receivers.add(sprayed.to)
        return len(self._run.transfers) > before

    def _carry(self, sender: int, sprayed: Sprayed) -> None:
        run, to, event, sensors = self._run, sprayed.to, sprayed.event, self._run.field.sensors
        run.log(sender, to, event)
        self._counts["by_owner"] += sender == event.id.source
        self._counts["to_mules" if to >= sensors else "put_back"] += to >= sensors or sender >= sensors
        if sender < sensors:
            run.accounts[sender].pay_send(run.field.event_bits, run.square(sender, to))
            run.check_death(sender)
        if to < sensors:
            run.accounts[to].pay_receive(run.field.event_bits)
            run.check_death(to)
        if self._cores[to].receive(sprayed, run.now):
            run.deliver(to - sensors, event, sprayed.hops)
        self._cores[sender].confirmed(sprayed)
        self._settle(to)

    def _settle(self, node: int) -> None:
        """Tell the neighbours of a node what it has to say; they do not answer."""
        effects = self._cores[node].effects
        for other, said in effects:
            self._cores[other].hear(node, said)
        effects.clear()
