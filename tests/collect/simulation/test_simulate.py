"""The compiled simulator beside its slow twin."""

from __future__ import annotations

import numpy as np
from fields import CETS, DGS, EPIDEMICS, FIELDS, SEEDS, told
from hypothesis import given

from roamcast.collect.simulation.contacts import entries_of, meetings
from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.field import Field, draw
from roamcast.collect.simulation.protocols import CET, DG, Epidemic
from roamcast.collect.simulation.reference import simulate_slowly
from roamcast.collect.simulation.reference.geometry import slow_contacts, slow_entries
from roamcast.collect.simulation.simulate import simulate

MORTAL = Radio(initial_j=2e-4)


def same(field: Field, seed: int, protocol: CET | DG | Epidemic, radio: Radio | None = None) -> bool:
    world = draw(field, seed)
    fast = simulate(world, protocol, radio, log=True, until_death=radio is not None)
    slow = simulate_slowly(world, protocol, radio, until_death=radio is not None)
    return told(fast) == told(slow)


@given(FIELDS, SEEDS)
def test_times_of_cells_are_those_of_brute_force(field: Field, seed: int) -> None:
    """Entries into cells equal, bit for bit, those found by trying all lines."""
    world = draw(field, seed)
    for fast, slow in zip(entries_of(field, world.legs), slow_entries(world), strict=True):
        assert np.array_equal(fast, slow)


@given(FIELDS, SEEDS)
def test_contacts_are_those_of_brute_force(field: Field, seed: int) -> None:
    """Contacts equal, bit for bit, those found by trying all sensors."""
    world = draw(field, seed)
    entries = slow_entries(world)
    for fast, slow in zip(meetings(world, entries), slow_contacts(world, entries), strict=True):
        assert np.array_equal(fast, slow)


@given(FIELDS, SEEDS, CETS)
def test_cet_equals_its_reference(field: Field, seed: int, protocol: CET) -> None:
    """Every transfer, delivery, count and joule is the same, bit for bit."""
    assert same(field, seed, protocol)


@given(FIELDS, SEEDS, CETS)
def test_cet_equals_its_reference_to_the_first_death(field: Field, seed: int, protocol: CET) -> None:
    """With little energy the same sensor dies in the same tick."""
    assert same(field, seed, protocol, MORTAL)


@given(FIELDS, SEEDS, DGS)
def test_direct_gathering_equals_its_reference(field: Field, seed: int, protocol: DG) -> None:
    """Every transfer, delivery, count and joule is the same, bit for bit."""
    assert same(field, seed, protocol)


@given(FIELDS, SEEDS, EPIDEMICS)
def test_epidemic_equals_its_reference(field: Field, seed: int, protocol: Epidemic) -> None:
    """Every transfer, delivery, count and joule is the same, bit for bit."""
    assert same(field, seed, protocol)


@given(FIELDS, SEEDS, CETS)
def test_given_contacts_equal_the_reference(field: Field, seed: int, protocol: CET) -> None:
    """Where contacts are given instead of legs, both simulators agree as well."""
    world = draw(field, seed)
    contacts = meetings(world, entries_of(field, world.legs))
    fast = simulate(world, protocol, contacts=contacts, log=True)
    assert told(fast) == told(simulate_slowly(world, protocol, contacts=contacts))


def test_more_than_64_mules_and_communities_are_told_apart() -> None:
    """Sets of mules and of communities that need several words work like small ones."""
    field = Field(side=300.0, cells=60, sensors=90, mules=70, gap_s=30.0, duration_s=30.0, silence_s=5.0, rate=2.0)
    assert same(field, 3, CET(quiet_s=0.0))


def test_same_world_gives_the_same_outcome() -> None:
    """Two runs of one seed are equal."""
    field = Field(duration_s=300.0)
    first, second = (told(simulate(draw(field, 5), CET(), log=True)) for _ in range(2))
    assert first == second


def test_progress_rises_to_the_whole() -> None:
    """Progress is told as rising parts, the last of which is 1."""
    parts: list[float] = []
    simulate(draw(Field(duration_s=100.0), 1), DG(), progress=parts.append)
    assert parts == sorted(parts)
    assert parts[-1] == 1.0


def test_epidemic_ends_where_there_are_more_sensors_than_rows_to_hand_out() -> None:
    """What is handed out at a time has room for a delivery by each sensor, however many there are."""
    field = Field(side=1e5, cells=1000, sensors=40_000, mules=1, gap_s=1e4, duration_s=20.0, silence_s=0.0)
    outcome = simulate(draw(field, 1), Epidemic())
    assert outcome.counts["born"] == outcome.held - outcome.counts["hops"] + outcome.counts["to_mules"] > 0
