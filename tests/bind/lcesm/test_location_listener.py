from __future__ import annotations

import math

import numpy as np
import pytest
from binding import places

from roamcast.bind.lcesm.location_listener import Listener, LocationEvent
from roamcast.lacl.syntax import BoxRegion, Circle, Region, Within
from roamcast.model import Box as Bounds
from roamcast.places import Places
from roamcast.space import PLANAR

ROOM = Within("room")
KNOWN = places(room=(0, 0, 2, 2), hall=(2, 0, 6, 6))
NOBODY_KNOWS = (math.nan, math.nan)


def listener() -> Listener:
    return Listener(PLANAR, KNOWN)


def move(listening: Listener, *steps: tuple[int, float, float]) -> list[tuple[str, Region, bool]]:
    entity, x, y = zip(*steps, strict=True)
    events = listening.move(np.array(entity, np.int32), np.array(x, np.float64), np.array(y, np.float64))
    return [(event.subscription, event.region, event.arrived) for event in events]


def test_arrival_and_departure() -> None:
    """An entity that comes into a registered place has arrived, one that goes out has departed."""
    listening = listener()
    listening.register("p", 0, [ROOM], 5, 5)
    assert move(listening, (0, 1, 1)) == [("p", ROOM, True)]
    assert move(listening, (0, 5, 5)) == [("p", ROOM, False)]


def test_moving_about_inside_is_no_event() -> None:
    """Only the change of state is an event."""
    listening = listener()
    listening.register("p", 0, [ROOM], 1, 1)
    assert move(listening, (0, 2, 2)) == []
    assert listening.inside("p", ROOM)


def test_the_border_belongs_to_a_place() -> None:
    """On the border between two places an entity is in both."""
    listening = listener()
    listening.register("p", 0, [ROOM, Within("hall")], 2, 1)
    assert listening.inside("p", ROOM)
    assert listening.inside("p", Within("hall"))


def test_an_entity_without_position_is_nowhere() -> None:
    """Who nobody knows where is in no place."""
    listening = listener()
    listening.register("p", 0, [ROOM, BoxRegion(Bounds(-9, -9, 9, 9))], *NOBODY_KNOWS)
    assert not listening.inside("p", ROOM)
    assert not listening.inside("p", BoxRegion(Bounds(-9, -9, 9, 9)))


def test_only_registered_entities_are_listened_to() -> None:
    """The moves of others, with handles below and above, are no events."""
    listening = listener()
    listening.register("p", 3, [ROOM], 5, 5)
    assert move(listening, (2, 1, 1), (4, 1, 1), (900, 1, 1)) == []


def test_several_registrations_of_one_entity() -> None:
    """Each subscription of an entity hears of its own regions."""
    listening = listener()
    listening.register("p", 0, [ROOM, Circle(1, 1, 0.5)], 9, 9)
    listening.register("q", 0, [ROOM], 9, 9)
    assert sorted(move(listening, (0, 2, 2)), key=repr) == [("p", ROOM, True), ("q", ROOM, True)]


@pytest.mark.parametrize("ended", ["p", "q", "r"])
def test_a_registration_that_is_cancelled_is_not_heard_of(ended: str) -> None:
    """Wherever in the chain it stands, a cancelled registration goes and the others stay."""
    listening = listener()
    for id in "pqr":
        listening.register(id, 0, [ROOM], 9, 9)
    listening.cancel(ended)
    assert {id for id, _, _ in move(listening, (0, 1, 1))} == set("pqr") - {ended}


def test_a_row_that_is_used_again() -> None:
    """A new registration takes nothing over from the one whose row it gets."""
    listening = listener()
    listening.register("p", 0, [ROOM], 1, 1)
    listening.cancel("p")
    listening.register("q", 1, [Within("hall")], 1, 1)
    assert move(listening, (0, 5, 5)) == []
    assert move(listening, (1, 5, 5)) == [("q", Within("hall"), True)]


def test_cancelling_what_was_never_registered() -> None:
    """A subscription without regions may be cancelled like any other."""
    listener().cancel("p")


def test_a_batch_is_as_its_moves_one_by_one() -> None:
    """Many entities and regions at once give the events that each move alone gives."""
    rng = np.random.default_rng(11)
    regions: list[Region] = [ROOM, Within("hall"), Circle(3, 3, 2), BoxRegion(Bounds(1, 1, 4, 2)), Within("nowhere")]
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


def test_places_that_change() -> None:
    """Who is inside now and was not before has arrived, without having moved."""
    listening = listener()
    listening.register("p", 0, [ROOM], 5, 5)
    where = (np.array([5.0]), np.array([5.0]))
    events = listening.change_places(places(room=(4, 4, 6, 6)), lambda handles: where)
    assert events == [LocationEvent("p", ROOM, arrived=True)]


def test_a_place_that_is_no_more() -> None:
    """Everybody has departed from a place that nobody knows any more."""
    listening = listener()
    listening.register("p", 0, [ROOM], 1, 1)
    where = (np.array([1.0]), np.array([1.0]))
    events = listening.change_places(Places({}, PLANAR), lambda handles: where)
    assert events == [LocationEvent("p", ROOM, arrived=False)]
