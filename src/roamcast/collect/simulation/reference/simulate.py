"""One run of a field under a protocol: the slow twin of `roamcast.collect.simulation.simulate`."""

from __future__ import annotations

import numpy as np

from roamcast.collect.simulation.contacts import Contacts, Entries
from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.field import World
from roamcast.collect.simulation.outcome import COUNTS, Outcome
from roamcast.collect.simulation.protocols import CET, Epidemic, Protocol
from roamcast.collect.simulation.reference.cet import CommunityTransmission
from roamcast.collect.simulation.reference.epidemic import Contagion
from roamcast.collect.simulation.reference.gathering import Gathering
from roamcast.collect.simulation.reference.geometry import slow_contacts, slow_entries
from roamcast.collect.simulation.reference.run import Run, drive
from roamcast.collect.simulation.schedule import clock_of, legs_of

__all__ = ["simulate_slowly"]


def simulate_slowly(
    world: World,
    protocol: Protocol,
    radio: Radio | None = None,
    *,
    contacts: Contacts | None = None,
    until_death: bool = False,
) -> Outcome:
    """Like `simulate`, with all transfers."""
    if contacts is None:
        entries = slow_entries(world)
        contacts = slow_contacts(world, entries)
    else:
        entries = Entries(np.zeros(0, np.int32), np.zeros(0), np.zeros((0, 2), np.int32))
        world = world._replace(legs=legs_of(contacts))
    clock = clock_of(world, contacts, entries, world.legs)
    run = Run(world, clock, contacts, radio or Radio())
    run.expiry = clock.after(world.births.time + protocol.beta).tolist()
    if isinstance(protocol, CET):
        rules: CommunityTransmission | Gathering | Contagion = CommunityTransmission(run, protocol)
    elif isinstance(protocol, Epidemic):
        rules = Contagion(run, protocol)
    else:
        rules = Gathering(run, protocol)
        calls: dict[int, set[int]] = {}
        for mule, tick in zip(entries.mule.tolist(), clock.first(entries.time).tolist(), strict=True):
            calls.setdefault(tick, set()).add(mule)
        rules.call_at(calls)
    drive(run, rules, until_death=until_death)
    return _outcome(world, run, rules)


def _outcome(world: World, run: Run, rules: CommunityTransmission | Gathering | Contagion) -> Outcome:
    delivered = np.array(run.deliveries, np.int64).reshape(-1, 4)
    pairs = ((mule, event) for event in range(run.counts["born"]) for mule in range(world.field.mules))
    death = run.first_death
    return Outcome(
        {name: run.counts[name] for name in COUNTS},
        delivered,
        run.clock.ends(delivered[:, 0]) - world.births.time[delivered[:, 2]],
        np.array(run.energy),
        sum(len(list(queue.own())) for queue in rules.queues),
        sum(copy.mule is not None for queue in rules.queues for copy in queue.copies),
        float(run.clock.ends(np.array(death))) if death is not None else None,
        sum(run.wants(mule, event) for mule, event in pairs),
        float(run.clock.ends(np.array(run.now))) if run.clock.ticks else 0.0,
        np.array(run.transfers, np.int64).reshape(-1, 4),
    )
