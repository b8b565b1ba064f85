"""The town's life, without a node."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from roamcast.lab.scenarios.town import Layout, Source, Streets, Town, Walker, load_layout
from roamcast.space import GEOGRAPHIC

CORNER, END, WEST, NORTH = (0.0, 0.0), (0.01, 0.0), (-0.01, 0.0), (0.0, 0.01)


@pytest.fixture(scope="module")
def layout() -> Layout:
    return load_layout()


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def lived(layout: Layout, seed: int, steps: int) -> list[object]:
    town = Town(layout, generator(seed))
    return [(town.step(0.25), town.vehicles()) for _ in range(steps)]


def test_town_has_sensors_vehicles_and_people(layout: Layout) -> None:
    """The town is as large as the scenario promises."""
    moving = [source for source in layout.sources if source.speed]
    assert (len(layout.sources) - len(moving), len(moving), len(layout.people)) == (12, 8, 6)


def test_vehicles_start_on_a_way(layout: Layout) -> None:
    """Every vehicle stands on a corner that it can leave."""
    corners = {point for way in layout.ways for point in way}
    assert {source.point for source in layout.sources if source.speed} <= corners


def test_ways_have_no_empty_pieces(layout: Layout) -> None:
    """No two corners in a row are one point, so that going along a way always gets on."""
    assert all(a != b for way in layout.ways for a, b in pairwise(way))


def test_scenery_layers_are_drawn(layout: Layout) -> None:
    """Water, districts and streets are scenery."""
    assert set(layout.scenery) == {"water", "districts", "streets"}


def test_same_seed_same_life(layout: Layout) -> None:
    """Two towns with equal generators report the same and move alike."""
    assert lived(layout, 5, 200) == lived(layout, 5, 200)


def test_other_seed_other_life(layout: Layout) -> None:
    """The life depends on the generator."""
    assert lived(layout, 5, 50) != lived(layout, 6, 50)


def test_town_reports_ten_to_twenty_times_a_second(layout: Layout) -> None:
    """A minute of town life brings between 600 and 1,200 reports."""
    town = Town(layout, generator())
    assert 600 <= sum(len(town.step(0.25)) for _ in range(240)) <= 1200


def test_each_source_reports(layout: Layout) -> None:
    """Within three seconds every source has said something."""
    town = Town(layout, generator())
    heard = {report.source for _ in range(12) for report in town.step(0.25)}
    assert heard == {source.id for source in layout.sources}


def test_alarms_come_and_go(layout: Layout) -> None:
    """Smoke sensors report fire at some times and only smoke at others, with readings that tell them apart."""
    town = Town(layout, generator())
    smoke = [r for _ in range(480) for r in town.step(0.25) if "smoke" in r.terms]
    fire = {"fire" in r.terms: r.readings["smoke_percent"] for r in smoke}
    assert fire[True] > 30 > fire[False]


def test_every_want_can_be_met(layout: Layout) -> None:
    """In ten minutes each person's subscriptions have matching reports."""
    town = Town(layout, generator())
    reports = [report for _ in range(2400) for report in town.step(0.25)]
    unmet = [
        (person.id, want)
        for person in layout.people
        for want in person.wants
        if not any(
            set(want.terms) <= set(r.terms)
            and (
                want.box is None
                or (want.box.min_x <= r.x <= want.box.max_x and want.box.min_y <= r.y <= want.box.max_y)
            )
            for r in reports
        )
    ]
    assert unmet == []


def test_vehicle_moves_at_its_speed() -> None:
    """On a straight way a vehicle covers speed times seconds."""
    bus = Source("b", "bus", "B", CORNER, speed=20.0)
    town = Town(Layout({}, ((CORNER, END),), (bus,), ()), generator())
    town.step(3.0)
    assert GEOGRAPHIC.distance(*CORNER, *town.vehicles()["b"]) == pytest.approx(60.0)


def test_walker_turns_back_at_a_dead_end() -> None:
    """What is left of a step after a dead end is gone backwards."""
    length = float(GEOGRAPHIC.distance(*CORNER, *END))
    walker = Walker(Streets([(CORNER, END)]), CORNER, generator())
    assert walker.advance(length * 1.25) == pytest.approx((END[0] * 0.75, 0.0))


@pytest.mark.parametrize("seed", range(8))
def test_walker_does_not_turn_round_at_a_crossing(seed: int) -> None:
    """Where there is another way on, the way back is not taken."""
    streets = Streets([(WEST, CORNER, END), (CORNER, NORTH)])
    assert streets.onward(CORNER, WEST, generator(seed)) in {END, NORTH}


def test_walkers_take_every_way_on() -> None:
    """At a crossing each way on is taken by some."""
    streets = Streets([(WEST, CORNER, END), (CORNER, NORTH)])
    rng = generator()
    assert {streets.onward(CORNER, WEST, rng) for _ in range(50)} == {END, NORTH}
