from __future__ import annotations

import math

import numpy as np
import pytest
from binding import places

from roamcast.bind.lcesm.location_listener import LocationListener
from roamcast.lacl.syntax import BoxRegion, Circle, Region, Within
from roamcast.model import Box
from roamcast.space import PLANAR

ROOM = Within("room")
KNOWN = places(room=(0, 0, 2, 2), hall=(2, 0, 6, 6))
UNKNOWN = (math.nan, math.nan)


def listener() -> LocationListener:
    return LocationListener(PLANAR, KNOWN)


def move(listening: LocationListener, *steps: tuple[int, float, float]) -> list[tuple[str, Region, bool]]:
    entity, x, y = zip(*steps, strict=True)
    events = listening.move(np.array(entity, np.int32), np.array(x, np.float64), np.array(y, np.float64))
    return [(event.subscription, event.region, event.arrived) for event in events]


def test_entering_and_leaving_a_region_are_events() -> None:
    """An arrival and a departure."""
    listening = listener()
    listening.register("p", 0, [ROOM], 5, 5)
    assert move(listening, (0, 1, 1)) == [("p", ROOM, True)]
    assert move(listening, (0, 5, 5)) == [("p", ROOM, False)]


def test_moving_inside_a_region_is_no_event() -> None:
    """Only the change is."""
    listening = listener()
    listening.register("p", 0, [ROOM], 1, 1)
    assert move(listening, (0, 2, 2)) == []
    assert listening.is_inside("p", ROOM)


def test_the_border_belongs_to_the_place() -> None:
    """On a common border an entity is in both places."""
    listening = listener()
    listening.register("p", 0, [ROOM, Within("hall")], 2, 1)
    assert listening.is_inside("p", ROOM)
    assert listening.is_inside("p", Within("hall"))


def test_an_entity_without_a_position_is_in_no_region() -> None:
    """Whatever the region."""
    listening = listener()
    listening.register("p", 0, [ROOM, BoxRegion(Box(-9, -9, 9, 9))], *UNKNOWN)
    assert not listening.is_inside("p", ROOM)
    assert not listening.is_inside("p", BoxRegion(Box(-9, -9, 9, 9)))


def test_moves_of_unregistered_entities_are_no_events() -> None:
    """With handles below and above the registered one."""
    listening = listener()
    listening.register("p", 3, [ROOM], 5, 5)
    assert move(listening, (2, 1, 1), (4, 1, 1), (900, 1, 1)) == []


def test_each_subscription_gets_events_of_its_own_regions() -> None:
    """Several registrations of one entity."""
    listening = listener()
    listening.register("p", 0, [ROOM, Circle(1, 1, 0.5)], 9, 9)
    listening.register("q", 0, [ROOM], 9, 9)
    assert sorted(move(listening, (0, 2, 2)), key=repr) == [("p", ROOM, True), ("q", ROOM, True)]


@pytest.mark.parametrize("ended", ["p", "q", "r"])
def test_a_cancelled_registration_gets_no_events(ended: str) -> None:
    """Wherever it is in the list of its entity; the others stay."""
    listening = listener()
    for id in "pqr":
        listening.register(id, 0, [ROOM], 9, 9)
    listening.cancel(ended)
    assert {id for id, _, _ in move(listening, (0, 1, 1))} == set("pqr") - {ended}


def test_a_reused_row_keeps_nothing() -> None:
    """Of the registration that had it before."""
    listening = listener()
    listening.register("p", 0, [ROOM], 1, 1)
    listening.cancel("p")
    listening.register("q", 1, [Within("hall")], 1, 1)
    assert move(listening, (0, 5, 5)) == []
    assert move(listening, (1, 5, 5)) == [("q", Within("hall"), True)]


def test_cancelling_an_unknown_subscription_does_nothing() -> None:
    """For subscriptions without regions."""
    listener().cancel("p")


def test_a_batch_gives_the_same_events_as_single_moves() -> None:
    """With many entities and regions."""
    rng = np.random.default_rng(11)
    regions: list[Region] = [ROOM, Within("hall"), Circle(3, 3, 2), BoxRegion(Box(1, 1, 4, 2)), Within("nowhere")]
    batch, single = listener(), listener()
    for entity in range(40):
        chosen = [region for region in regions if rng.random() < 0.5]
        for listening in (batch, single):
            listening.register(f"p{entity}", entity, chosen, 9, 9)
    for _ in range(20):
        entities = rng.permutation(40)[:25]
        steps = [(int(entity), *rng.integers(0, 7, 2).astype(float).tolist()) for entity in entities]
        expected = [event for step in steps for event in move(single, step)]
        assert sorted(move(batch, *steps), key=repr) == sorted(expected, key=repr)
