"""Runs the reference simulation; see `roamcast.collect.simulation.simulate`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from field_reference.cet import ReferenceCET
from field_reference.dg import ReferenceDG
from field_reference.epidemic import ReferenceEpidemic
from field_reference.geometry import reference_contacts, reference_entries
from field_reference.queues import CopyQueue
from field_reference.run import ReferenceRun, run_reference
from roamcast.collect.simulation.contacts import Contacts, Entries
from roamcast.collect.simulation.field import FieldWorld, Radio
from roamcast.collect.simulation.kernels.layout import COUNTS
from roamcast.collect.simulation.protocols import CET, Epidemic, Protocol
from roamcast.collect.simulation.results import SimulationResult
from roamcast.collect.simulation.schedule import legs_from_contacts, make_clock

__all__ = ["simulate_reference"]


def simulate_reference(
    world: FieldWorld,
    protocol: Protocol,
    radio: Radio | None = None,
    *,
    contacts: Contacts | None = None,
    until_death: bool = False,
) -> SimulationResult:
    """Like `simulate`, with all transfers logged."""
    if contacts is None:
        entries = reference_entries(world)
        contacts = reference_contacts(world, entries)
    else:
        entries = Entries(np.zeros(0, np.int32), np.zeros(0), np.zeros((0, 2), np.int32))
        world = world._replace(legs=legs_from_contacts(contacts))
    clock = make_clock(world, contacts, entries, world.legs)
    run = ReferenceRun(world, clock, contacts, radio or Radio())
    run.expiry = clock.after(world.events.time + protocol.beta).tolist()
    if isinstance(protocol, CET):
        rules: ReferenceCET | ReferenceDG | ReferenceEpidemic = ReferenceCET(run, protocol)
    elif isinstance(protocol, Epidemic):
        rules = ReferenceEpidemic(run, protocol)
    else:
        rules = ReferenceDG(run, protocol)
        calls: dict[int, set[int]] = {}
        for mule, tick in zip(entries.mule.tolist(), clock.first(entries.time).tolist(), strict=True):
            calls.setdefault(tick, set()).add(mule)
        rules.set_cell_entries(calls)
    run_reference(run, rules, until_death=until_death)
    return _result(world, run, rules.queues)


def _result(world: FieldWorld, run: ReferenceRun, queues: Sequence[CopyQueue]) -> SimulationResult:
    delivered = np.array(run.deliveries, np.int64).reshape(-1, 4)
    pairs = ((mule, event) for event in range(run.counts["created"]) for mule in range(world.field.mules))
    death = run.first_death
    return SimulationResult(
        counts={name: run.counts[name] for name in COUNTS},
        delivered=delivered,
        delay_s=run.clock.ends(delivered[:, 0]) - world.events.time[delivered[:, 2]],
        energy=np.array(run.energy),
        held=sum(len(list(queue.own())) for queue in queues),
        under_way=sum(copy.mule is not None for queue in queues for copy in queue.copies),
        first_death_s=float(run.clock.ends(np.array(death))) if death is not None else None,
        wanted=sum(run.wants(mule, event) for mule, event in pairs),
        ended_s=float(run.clock.ends(np.array(run.now))) if run.clock.ticks else 0.0,
        transfers=np.array(run.transfers, np.int64).reshape(-1, 4),
    )
