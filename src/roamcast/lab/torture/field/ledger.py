"""What has happened in truth, and whether the nodes have kept to their rules."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from roamcast.collect.protocol.events import Copy, EventId, FieldEvent
from roamcast.collect.protocol.frames import FRAME_BYTES
from roamcast.lab.torture.field.hosts import BaseHost, Host, MuleHost, SensorHost

if TYPE_CHECKING:
    from roamcast.lab.torture.field.simulation import FieldSimulation

__all__ = ["Ledger"]

_SLACK_MS: Final = 6_000
"""Frames that were late several times, and clocks that run fast."""


class Ledger:
    """Every event as it was sensed, and what became of it. `violations` says what should not have happened."""

    def __init__(self, simulation: FieldSimulation) -> None:
        self._simulation = simulation
        self.violations: list[str] = []
        self.events: dict[EventId, tuple[FieldEvent, int]] = {}
        """With the time of sensing, in milliseconds of true time."""
        self.drops: Counter[str] = Counter()
        self.collected: set[EventId] = set()
        self.taken: set[EventId] = set()
        self._received: dict[int, set[EventId]] = {}
        """What each mule has received."""
        self._steps: Counter[int] = Counter()
        self._dropped: dict[EventId, set[str]] = {}
        self._drops_at: dict[str, Counter[str]] = {}
        self._joules: dict[str, float] = {}

    def sensed(self, host: SensorHost, event: FieldEvent) -> None:
        if event.id in self.events:
            self._violate(f"forged: {host.name} gives the id {event.id} to two events")
        self.events[event.id] = event, self._simulation.now // 1000

    def check_frame(self, host: Host, frame: bytes) -> None:
        if len(frame) > FRAME_BYTES:
            self._violate(f"too large: {host.name} sends a frame of {len(frame)} bytes")

    def note_step(self, host: Host) -> None:
        """A host has handled something, and stored the result."""
        if isinstance(host, SensorHost):
            self._note_sensor(host)
        elif isinstance(host, MuleHost):
            self._note_mule(host)
        elif isinstance(host, BaseHost):
            for event in host.station.taken:
                self._check_true(host, event)
                if event.id in self.taken:
                    self._violate(f"duplicated: {host.name} takes {event.id} twice")
                self.taken.add(event.id)
            host.station.taken.clear()

    def check_end(self, hosts: list[Host]) -> None:
        """Everything is quiet: every mule was everywhere and then at a base, without faults, and is away."""
        held: Counter[EventId] = Counter()
        unsent: set[EventId] = set()
        for host in hosts:
            if isinstance(host, SensorHost):
                for copy in host.station.core.queue.own():
                    self._check_sent(host, copy)
                    held[copy.event.id] += 1
                    for mule in self._simulation.mules:
                        if mule.settings.me not in copy.sent_to and mule.settings.wants(copy.event):
                            unsent.add(copy.event.id)
                self._check_counts(host)
            elif isinstance(host, MuleHost) and host.station.core.cargo:
                self._violate(f"stuck: {host.name} still carries {len(host.station.core.cargo)} events")
        for event_id in self.collected - self.taken:
            self._violate(f"lost: {event_id} was collected by a mule and has not reached a base")
        for event_id, (event, _) in self.events.items():
            if event_id in self.taken or self._dropped.get(event_id):
                continue
            is_wanted = any(mule.settings.wants(event) for mule in self._simulation.mules)
            if not held[event_id]:
                self._violate(f"lost: nobody has {event_id} any more, and no rule dropped it")
            elif is_wanted and event_id not in unsent:
                self._violate(f"lost: all mules are said to have {event_id}, and it has not reached a base")
            elif is_wanted:
                self._violate(f"stuck: {event_id} was not sent to mules that want it")
        self._check_agreement([host for host in hosts if isinstance(host, SensorHost)])

    def check_recovered(self, hosts: list[SensorHost]) -> None:
        """Faults have ended a while ago: members know of each other which mules they reach."""
        for host in hosts:
            for other in hosts:
                believed, true = (
                    host.station.core.met_by(other.settings.me),
                    other.station.core.met_by(other.settings.me),
                )
                if other.settings.community == host.settings.community and believed != true:
                    self._violate(f"outdated: {host.name} believes that {other.name} reaches {believed}, not {true}")

    def _check_sent(self, host: SensorHost, copy: Copy) -> None:
        """Mules have received what they were sent, unless a relayed copy was dropped by a rule."""
        for mule in copy.sent_to:
            is_stranded = "stranded" in self._dropped.get(copy.event.id, ())
            if copy.event.id not in self._received.get(mule, ()) and not is_stranded:
                self._violate(f"lost: {host.name} believes that mule {mule} has received {copy.event.id}")

    def _note_sensor(self, host: SensorHost) -> None:
        station, policy = host.station, host.settings.policy
        if len(station.core.queue.copies) > policy.K:
            self._violate(f"overfull: {host.name} has {len(station.core.queue.copies)} copies")
        joules = station.core.account.joules
        if joules > self._joules.get(host.name, joules):
            self._violate(f"energy: {host.name} has more than before")
        self._joules[host.name] = joules
        for event, rule in station.dropped:
            self.drops[rule] += 1
            self._drops_at.setdefault(host.name, Counter())[rule] += 1
            self._dropped.setdefault(event.id, set()).add(rule)
            self._check_true(host, event)
            age = self._simulation.now // 1000 - self.events[event.id][1] if event.id in self.events else 0
            if rule == "expired" and age < host.settings.beta - _SLACK_MS:
                self._violate(f"too early: {host.name} drops {event.id} as expired after {age} ms")
        station.dropped.clear()

    def _note_mule(self, host: MuleHost) -> None:
        core = host.station.core
        if len(core.cargo) > core.room:
            self._violate(f"overfull: {host.name} carries {len(core.cargo)} events")
        if core.counts["to_mules"] == self._steps[core.me]:
            return
        self._steps[core.me] = core.counts["to_mules"]
        self._received.setdefault(core.me, set()).update(core.known)
        for event_id, carried in core.cargo.items():
            if event_id not in self.collected:
                self.collected.add(event_id)
                self._check_true(host, carried.event)

    def _check_true(self, host: Host, event: FieldEvent) -> None:
        """An event is what was sensed, and its age is right."""
        known = self.events.get(event.id)
        if known is None or (event.content, event.origin) != (known[0].content, known[0].origin):
            self._violate(f"forged: {host.name} has {event.id} with other content")
            return
        age = self._simulation.now // 1000 - known[1]
        if abs(age - (host.now() - event.born)) > _SLACK_MS:
            self._violate(f"forged: {host.name} takes {event.id} for {host.now() - event.born} ms old, not {age}")

    def _check_counts(self, host: SensorHost) -> None:
        """Every copy that was taken was passed on, was dropped for a counted reason, or is still there."""
        core, name = host.station.core, host.name
        counts = core.counts
        own = sum(1 for _ in core.queue.own())
        if counts["created"] + counts["kept"] != counts["full"] + counts["expired"] + counts["spent"] + own:
            self._violate(f"uncounted: own copies at {name}: {dict(counts)}, {own} held")
        relayed = len(core.queue.copies) - own + sum(hasattr(out.transfer, "mule") for out in core.passing)
        if counts["accepted"] != counts["passed_on"] + counts["stranded"] + relayed:
            self._violate(f"uncounted: relayed copies at {name}: {dict(counts)}, {relayed} held")
        noted = self._drops_at.get(name, Counter())
        if any(noted[rule] != counts[rule] for rule in ("full", "expired", "spent", "stranded")):
            self._violate(f"uncounted: {name} reports {dict(noted)} and counts {dict(counts)}")

    def _check_agreement(self, hosts: list[SensorHost]) -> None:
        heads: dict[int, set[int]] = {}
        for host in hosts:
            core = host.station.core
            heads.setdefault(core.community.id, set()).add(core.heads.head)
            if core.mules:
                self._violate(f"ghosts: {host.name} believes in contacts with {sorted(core.mules)}")
        for community, names in heads.items():
            if len(names) > 1:
                self._violate(f"two heads: community {community} has {sorted(names)}")

    def _violate(self, what: str) -> None:
        self.violations.append(f"{what} (at {self._simulation.now / 1e6:.3f} s)")
