"""Properties of a run that follow from the contacts alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite

import numpy as np
from fields import CETS, DGS, EPIDEMICS, FIELDS, SEEDS, SPRAYS, cells_by_sensor, comparable, tick_begin
from hypothesis import given
from profiles import thorough

from roamcast.collect.protocol.communities import find_communities, neighbours_of
from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.rules import CET, DG, Epidemic, Protocol, SprayAndWait
from roamcast.collect.simulation.contacts import cell_entries, find_contacts
from roamcast.collect.simulation.field import Field, FieldWorld, draw_world
from roamcast.collect.simulation.results import SimulationResult
from roamcast.collect.simulation.schedule import make_schedule
from roamcast.collect.simulation.simulate import simulate

RADIO = Radio()


def pairs(result: SimulationResult) -> set[tuple[int, int]]:
    return {(event, mule) for _, mule, event, _ in result.delivered.tolist()}


def wants(world: FieldWorld, event: int, mule: int) -> bool:
    events, want = world.events, world.want[mule]
    return bool(events.a1[event] < want[0] and events.a2[event] < want[1])


def contact_rows(world: FieldWorld) -> list[tuple[float, float, int, int]]:
    """Contacts (begin, end, mule, sensor)."""
    contacts = find_contacts(world, cell_entries(world.field, world.legs))
    rows = zip(
        *(column.tolist() for column in (contacts.begin, contacts.end, contacts.mule, contacts.sensor)), strict=True
    )
    return [row for row in rows if row[0] < row[1]]


def groups(world: FieldWorld) -> dict[int, int]:
    """The group of each sensor."""
    found = find_communities(cells_by_sensor(world))
    return {sensor: group for group, community in enumerate(found) for sensor in community.members}


def reachable(
    world: FieldWorld, event: int, home: Mapping[int, int], log: Sequence[tuple[float, float, int, int]]
) -> set[int]:
    """Mules that a time-respecting walk from the creation of the event reaches; groups keep events for ever."""
    has_since = {("group", home[int(world.events.sensor[event])]): float(world.events.time[event])}
    while True:
        reached = dict(has_since)
        for begin, end, mule, sensor in log:
            ends = (("mule", mule), ("group", home[sensor]))
            for giver, taker in (ends, ends[::-1]):
                since = reached.get(giver, inf)
                if since < end and max(since, begin) < reached.get(taker, inf):
                    reached[taker] = max(since, begin)
        if reached == has_since:
            break
        has_since = reached
    mules = {number for kind, number in has_since if kind == "mule"}
    return {mule for mule in mules if has_since["mule", mule] < world.field.duration_s}


@thorough()
@given(FIELDS, SEEDS)
def test_unlimited_epidemic_delivers_what_can_be_reached(field: Field, seed: int) -> None:
    """Without limits of rate and queue it delivers exactly what time-respecting walks over the contacts allow."""
    world = draw_world(replace(field, rate=inf), seed)
    home, log = groups(world), contact_rows(world)
    possible = {
        (event, mule)
        for event in range(len(world.events.time))
        for mule in reachable(world, event, home, log)
        if wants(world, event, mule)
    }
    assert pairs(simulate(world, Epidemic())) == possible


@thorough()
@given(FIELDS, SEEDS)
def test_unlimited_epidemic_delivers_at_the_earliest_time(field: Field, seed: int) -> None:
    """No other protocol delivers a pair earlier, or a pair that Epidemic does not deliver."""
    world = draw_world(replace(field, rate=inf), seed)
    best = {(e, m): tick for tick, m, e, _ in simulate(world, Epidemic()).delivered.tolist()}
    for protocol in (CET(), DG()):
        for tick, mule, event, _ in simulate(world, protocol).delivered.tolist():
            assert best[event, mule] <= tick


@thorough()
@given(FIELDS, SEEDS)
def test_unlimited_direct_gathering_delivers_what_the_contacts_allow(field: Field, seed: int) -> None:
    """A mule gets an event iff it wants it and is in reach of its sensor between creation and age beta."""
    world = draw_world(replace(field, rate=inf), seed)
    beta, log = 20.0, contact_rows(world)
    met = {
        (event, mule)
        for event, (created, source) in enumerate(
            zip(world.events.time.tolist(), world.events.sensor.tolist(), strict=True)
        )
        for begin, end, mule, sensor in log
        if sensor == source and max(begin, created) < end and begin <= created + beta and wants(world, event, mule)
    }
    room = max(1, len(world.events.time))
    assert pairs(simulate(world, DG(K=room, beta=beta))) == met


@thorough()
@given(FIELDS, SEEDS, CETS)
def test_transfers_happen_within_contacts(field: Field, seed: int, protocol: CET) -> None:
    """A transfer to or from a mule lies within a contact for the whole tick."""
    world = draw_world(field, seed)
    clock, log = make_schedule(world).clock, contact_rows(world)
    result = simulate(world, protocol, log=True)
    assert result.transfers is not None
    for tick, *ends, _ in result.transfers.tolist():
        if max(ends) >= field.sensors:
            begin, end = tick_begin(clock, tick), float(clock.ends(np.array(tick)))
            sensor, mule = min(ends), max(ends) - field.sensors
            held = [row for row in log if row[2:] == (mule, sensor) and row[0] <= begin and end <= row[1]]
            assert held
        else:
            assert ends[1] in neighbours_of(cells_by_sensor(world))[ends[0]]


@thorough()
@given(FIELDS, SEEDS, CETS)
def test_the_rate_is_not_exceeded(field: Field, seed: int, protocol: CET) -> None:
    """In a tick each node, sender, receiver or link (`rate_per`) has at most one transfer."""
    if not isfinite(field.rate):
        return
    result = simulate(draw_world(field, seed), replace(protocol, put_back=False, hand_up="hop"), log=True)
    assert result.transfers is not None
    columns = {"node": ([1], [2]), "sender": ([1],), "receiver": ([2],), "link": ([1, 2],)}[protocol.rate_per]
    for column in columns:
        ends = Counter(map(tuple, result.transfers[:, [0, *column]].tolist()))
        assert max(ends.values(), default=0) <= 1


@thorough()
@given(FIELDS, SEEDS, CETS)
def test_copies_are_conserved_in_cet(field: Field, seed: int, protocol: CET) -> None:
    """Every event created or put back is in a queue, or was dropped for a counted reason."""
    result = simulate(draw_world(field, seed), protocol)
    dropped = sum(result.counts[cause] for cause in ("full", "expired", "spent"))
    assert result.counts["created"] + result.counts["put_back"] == dropped + result.held


@thorough()
@given(FIELDS, SEEDS, DGS)
def test_events_are_conserved_in_direct_gathering(field: Field, seed: int, protocol: DG) -> None:
    """Every event created is in a queue, or was dropped for a counted reason."""
    result = simulate(draw_world(field, seed), protocol)
    assert result.counts["created"] == result.counts["full"] + result.counts["expired"] + result.held


@thorough()
@given(FIELDS, SEEDS, CETS)
def test_relayed_copies_are_conserved(field: Field, seed: int, protocol: CET) -> None:
    """Every copy that an owner sends reaches a mule, is stranded, or is still being relayed."""
    result = simulate(draw_world(field, seed), protocol)
    counts = result.counts
    assert counts["by_owner"] == counts["to_mules"] + counts["stranded"] + result.under_way


def spent(world: FieldWorld, result: SimulationResult) -> dict[int, float]:
    """Energy spent by each sensor, from the radio model and the log of transfers."""
    field, legs = world.field, world.legs
    clock, joules = make_schedule(world).clock, defaultdict[int, float](float)
    assert result.transfers is not None
    for tick, sender, receiver, _ in result.transfers.tolist():
        time = tick_begin(clock, tick)
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


@thorough()
@given(FIELDS, SEEDS, CETS | DGS | EPIDEMICS | SPRAYS)
def test_energy_follows_from_the_transfers(field: Field, seed: int, protocol: Protocol) -> None:
    """Each sensor has spent what the radio model gives for its transfers."""
    world = draw_world(field, seed)
    result = simulate(world, protocol, log=True)
    joules = spent(world, result)
    expected = [RADIO.initial_j - joules[sensor] for sensor in range(field.sensors)]
    assert np.allclose(result.energy, expected, rtol=0, atol=1e-12)


@thorough()
@given(FIELDS, SEEDS, SPRAYS)
def test_spray_and_wait_sprays_at_most_all_copies(field: Field, seed: int, protocol: SprayAndWait) -> None:
    """Nodes that do not want an event get it at most L - 1 times: each takes at least one of the copies."""
    world = draw_world(field, seed)
    result = simulate(world, protocol, log=True)
    assert result.transfers is not None
    sprayed = Counter(
        event
        for _, _, receiver, event in result.transfers.tolist()
        if receiver < field.sensors or not wants(world, event, receiver - field.sensors)
    )
    assert max(sprayed.values(), default=0) <= protocol.L - 1


@thorough()
@given(FIELDS, SEEDS)
def test_with_enough_copies_spray_and_wait_is_epidemic(field: Field, seed: int) -> None:
    """Nobody runs out of copies."""
    world = draw_world(field, seed)
    spray, epidemic = (simulate(world, protocol, log=True) for protocol in (SprayAndWait(L=1 << 30), Epidemic()))
    assert comparable(spray) == comparable(epidemic)
