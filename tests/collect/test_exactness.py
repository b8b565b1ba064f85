"""What a run must be by the contact log alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from math import inf, isfinite

import numpy as np
from fields import CETS, DGS, EPIDEMICS, FIELDS, SEEDS
from hypothesis import given

from roamcast.collect.simulation.contacts import entries_of, meetings
from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.field import Field, World, draw
from roamcast.collect.simulation.outcome import Outcome
from roamcast.collect.simulation.protocols import CET, DG, Epidemic
from roamcast.collect.simulation.reference.communities import communities, neighbours
from roamcast.collect.simulation.schedule import schedule
from roamcast.collect.simulation.simulate import simulate

RADIO = Radio()


def pairs(outcome: Outcome) -> set[tuple[int, int]]:
    return {(event, mule) for _, mule, event, _ in outcome.delivered.tolist()}


def wants(world: World, event: int, mule: int) -> bool:
    births, want = world.births, world.want[mule]
    return bool(births.a1[event] < want[0] and births.a2[event] < want[1])


def log_of(world: World) -> list[tuple[float, float, int, int]]:
    """Contacts (begin, end, mule, sensor) before the end of time."""
    contacts = meetings(world, entries_of(world.field, world.legs))
    rows = zip(
        *(column.tolist() for column in (contacts.begin, contacts.end, contacts.mule, contacts.sensor)), strict=True
    )
    return [row for row in rows if row[0] < row[1]]


def reachable(world: World, event: int) -> set[int]:
    """Mules that a walk through time from the event's birth leads to: groups hold on to what they have for ever."""
    home = {sensor: group for group, members in enumerate(communities(neighbours(world))) for sensor in members}
    groups, mules = {home[int(world.births.sensor[event])]}, set[int]()
    has_since = {("group", next(iter(groups))): float(world.births.time[event])}
    log = log_of(world)
    while True:
        found = dict(has_since)
        for begin, end, mule, sensor in log:
            ends = (("mule", mule), ("group", home[sensor]))
            for giver, taker in (ends, ends[::-1]):
                since = found.get(giver, inf)
                if since < end and max(since, begin) < found.get(taker, inf):
                    found[taker] = max(since, begin)
        if found == has_since:
            break
        has_since = found
    mules = {number for kind, number in has_since if kind == "mule"}
    return {mule for mule in mules if has_since["mule", mule] < world.field.duration_s}


@given(FIELDS, SEEDS)
def test_unlimited_epidemic_delivers_what_can_be_reached(field: Field, seed: int) -> None:
    """Without limits of rate and room it delivers exactly what time-respecting walks over the contact log allow."""
    world = draw(replace(field, rate=inf), seed)
    possible = {
        (event, mule)
        for event in range(len(world.births.time))
        for mule in reachable(world, event)
        if wants(world, event, mule)
    }
    assert pairs(simulate(world, Epidemic())) == possible


@given(FIELDS, SEEDS)
def test_unlimited_epidemic_delivers_at_the_earliest_time(field: Field, seed: int) -> None:
    """No other protocol delivers a pair earlier than unlimited Epidemic, nor one that it does not deliver."""
    world = draw(replace(field, rate=inf), seed)
    best = {(e, m): tick for tick, m, e, _ in simulate(world, Epidemic()).delivered.tolist()}
    for protocol in (CET(), DG()):
        for tick, mule, event, _ in simulate(world, protocol).delivered.tolist():
            assert best[event, mule] <= tick


@given(FIELDS, SEEDS)
def test_unlimited_gathering_delivers_what_the_contact_log_allows(field: Field, seed: int) -> None:
    """A mule gets an event it wants iff it is in reach of the event's own sensor at some time from birth to beta."""
    world = draw(replace(field, rate=inf), seed)
    beta, log = 20.0, log_of(world)
    met = {
        (event, mule)
        for event, (born, source) in enumerate(
            zip(world.births.time.tolist(), world.births.sensor.tolist(), strict=True)
        )
        for begin, end, mule, sensor in log
        if sensor == source and max(begin, born) < end and begin <= born + beta and wants(world, event, mule)
    }
    room = max(1, len(world.births.time))
    assert pairs(simulate(world, DG(K=room, beta=beta))) == met


@given(FIELDS, SEEDS, CETS)
def test_transfers_happen_within_contacts(field: Field, seed: int, protocol: CET) -> None:
    """Whoever sends to a mule, or hears one, is in contact with it throughout the tick."""
    world = draw(field, seed)
    clock, log = schedule(world).clock, log_of(world)
    outcome = simulate(world, protocol, log=True)
    assert outcome.transfers is not None
    for tick, *ends, _ in outcome.transfers.tolist():
        if max(ends) >= field.sensors:
            begin, end = float(clock.begins(np.array(tick))), float(clock.ends(np.array(tick)))
            sensor, mule = min(ends), max(ends) - field.sensors
            held = [row for row in log if row[2:] == (mule, sensor) and row[0] <= begin and end <= row[1]]
            assert held
        else:
            assert ends[1] in neighbours(world)[ends[0]]


@given(FIELDS, SEEDS, CETS)
def test_rate_is_kept(field: Field, seed: int, protocol: CET) -> None:
    """In a tick whoever the rate is that of sends or receives one event: node, sender, receiver, or each link."""
    if not isfinite(field.rate):
        return
    outcome = simulate(draw(field, seed), replace(protocol, put_back=False, hand_up="hop"), log=True)
    assert outcome.transfers is not None
    columns = {"node": ([1], [2]), "sender": ([1],), "receiver": ([2],), "link": ([1, 2],)}[protocol.rate_per]
    for column in columns:
        ends = Counter(map(tuple, outcome.transfers[:, [0, *column]].tolist()))
        assert max(ends.values(), default=0) <= 1


@given(FIELDS, SEEDS, CETS)
def test_copies_are_conserved_in_cet(field: Field, seed: int, protocol: CET) -> None:
    """What was born or put back is in a queue, or was dropped with a cause."""
    outcome = simulate(draw(field, seed), protocol)
    gone = sum(outcome.counts[cause] for cause in ("full", "expired", "spent"))
    assert outcome.counts["born"] + outcome.counts["put_back"] == gone + outcome.held


@given(FIELDS, SEEDS, DGS)
def test_events_are_conserved_in_gathering(field: Field, seed: int, protocol: DG) -> None:
    """What was born is in a queue, or was dropped with a cause."""
    outcome = simulate(draw(field, seed), protocol)
    assert outcome.counts["born"] == outcome.counts["full"] + outcome.counts["expired"] + outcome.held


@given(FIELDS, SEEDS, CETS)
def test_relayed_copies_are_conserved(field: Field, seed: int, protocol: CET) -> None:
    """What owners send ends at a mule, or strands, or is still on its way up."""
    outcome = simulate(draw(field, seed), protocol)
    counts = outcome.counts
    assert counts["by_owner"] == counts["to_mules"] + counts["stranded"] + outcome.under_way


def spent(world: World, outcome: Outcome) -> dict[int, float]:
    """By the formulas of the radio and the log of transfers alone."""
    field, legs = world.field, world.legs
    clock, joules = schedule(world).clock, defaultdict[int, float](float)
    assert outcome.transfers is not None
    for tick, sender, receiver, _ in outcome.transfers.tolist():
        time = float(clock.begins(np.array(tick)))
        where = []
        for node in (sender, receiver):
            if node < field.sensors:
                where.append((world.x[node], world.y[node]))
                continue
            mine = np.flatnonzero((legs.mule == node - field.sensors) & (legs.start <= time))
            leg = mine[-1]
            part = np.clip((time - legs.start[leg]) / (legs.arrive[leg] - legs.start[leg]), 0, 1)
            where.append(
                (legs.x0[leg] * (1 - part) + legs.x1[leg] * part, legs.y0[leg] * (1 - part) + legs.y1[leg] * part)
            )
        (x0, y0), (x1, y1) = where
        if sender < field.sensors:
            joules[sender] += field.event_bits * (50e-9 + 10e-12 * ((x0 - x1) ** 2 + (y0 - y1) ** 2))
        if receiver < field.sensors:
            joules[receiver] += field.event_bits * 50e-9
    return joules


@given(FIELDS, SEEDS, CETS | DGS | EPIDEMICS)
def test_energy_is_the_closed_form_of_what_was_sent_and_received(
    field: Field, seed: int, protocol: CET | DG | Epidemic
) -> None:
    """Each sensor has lost what the formulas say of its transfers."""
    world = draw(field, seed)
    outcome = simulate(world, protocol, log=True)
    joules = spent(world, outcome)
    expected = [RADIO.initial_j - joules[sensor] for sensor in range(field.sensors)]
    assert np.allclose(outcome.energy, expected, rtol=0, atol=1e-12)
