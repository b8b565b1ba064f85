"""The simulation of the town, without a node."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from roamcast.lab.scenarios.town import Streets, TownLayout, TownModel, TownSource, Walker, load_town
from roamcast.space import GEOGRAPHIC

CORNER, END, WEST, NORTH = (0.0, 0.0), (0.01, 0.0), (-0.01, 0.0), (0.0, 0.01)


@pytest.fixture(scope="module")
def layout() -> TownLayout:
    return load_town()


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def simulate_town(layout: TownLayout, seed: int, steps: int) -> list[object]:
    town = TownModel(layout, generator(seed))
    return [(town.step(0.25), town.vehicles()) for _ in range(steps)]


def test_town_has_sensors_vehicles_and_people(layout: TownLayout) -> None:
    """The town has the documented size."""
    moving = [source for source in layout.sources if source.speed]
    assert (len(layout.sources) - len(moving), len(moving), len(layout.people)) == (12, 8, 6)


def test_vehicles_start_on_a_street(layout: TownLayout) -> None:
    """Every vehicle starts at a corner that it can leave."""
    corners = {point for way in layout.streets for point in way}
    assert {source.point for source in layout.sources if source.speed} <= corners


def test_streets_have_no_empty_segments(layout: TownLayout) -> None:
    """Consecutive corners differ."""
    assert all(a != b for way in layout.streets for a, b in pairwise(way))


def test_scenery_layers_are_drawn(layout: TownLayout) -> None:
    """Water, districts and streets are scenery."""
    assert set(layout.scenery) == {"water", "districts", "streets"}


def test_the_same_seed_gives_the_same_reports(layout: TownLayout) -> None:
    """Two towns with equal generators have equal reports and movement."""
    assert simulate_town(layout, 5, 200) == simulate_town(layout, 5, 200)


def test_another_seed_gives_other_reports(layout: TownLayout) -> None:
    """The reports depend on the generator."""
    assert simulate_town(layout, 5, 50) != simulate_town(layout, 6, 50)


def test_the_town_has_10_to_20_reports_per_second(layout: TownLayout) -> None:
    """A minute has between 600 and 1,200 reports."""
    town = TownModel(layout, generator())
    assert 600 <= sum(len(town.step(0.25)) for _ in range(240)) <= 1200


def test_each_source_reports(layout: TownLayout) -> None:
    """Within three seconds every source has reported."""
    town = TownModel(layout, generator())
    reporting = {report.source for _ in range(12) for report in town.step(0.25)}
    assert reporting == {source.id for source in layout.sources}


def test_alarms_begin_and_end(layout: TownLayout) -> None:
    """Smoke sensors sometimes report fire, with other readings."""
    town = TownModel(layout, generator())
    smoke = [r for _ in range(480) for r in town.step(0.25) if "smoke" in r.terms]
    fire = {"fire" in r.terms: r.readings["smoke_percent"] for r in smoke}
    assert fire[True] > 30 > fire[False]


def test_every_subscription_has_matching_reports(layout: TownLayout) -> None:
    """Within ten minutes."""
    town = TownModel(layout, generator())
    reports = [report for _ in range(2400) for report in town.step(0.25)]
    unmet = [
        (person.id, want)
        for person in layout.people
        for want in person.subscriptions
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


def test_a_vehicle_moves_at_its_speed() -> None:
    """On a straight street the distance is speed times seconds."""
    bus = TownSource("b", "bus", "B", CORNER, speed=20.0)
    town = TownModel(TownLayout({}, ((CORNER, END),), (bus,), ()), generator())
    town.step(3.0)
    assert GEOGRAPHIC.distance(*CORNER, *town.vehicles()["b"]) == pytest.approx(60.0)


def test_a_walker_turns_back_at_a_dead_end() -> None:
    """The rest of the step leads back."""
    length = float(GEOGRAPHIC.distance(*CORNER, *END))
    walker = Walker(Streets([(CORNER, END)]), CORNER, generator())
    assert walker.advance(length * 1.25) == pytest.approx((END[0] * 0.75, 0.0))


@pytest.mark.parametrize("seed", range(8))
def test_a_walker_does_not_turn_back_at_a_crossing(seed: int) -> None:
    """It goes back only if there is no other street."""
    streets = Streets([(WEST, CORNER, END), (CORNER, NORTH)])
    assert streets.next_corner(CORNER, WEST, generator(seed)) in {END, NORTH}


def test_walkers_take_every_street_at_a_crossing() -> None:
    """Each street is taken by some walkers."""
    streets = Streets([(WEST, CORNER, END), (CORNER, NORTH)])
    rng = generator()
    assert {streets.next_corner(CORNER, WEST, rng) for _ in range(50)} == {END, NORTH}
