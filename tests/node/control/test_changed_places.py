"""Places whose outlines change, that go, and that come back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from binding import places
from control_writers import SECONDS, World, world

from roamcast.bind.lcesm.views import SubscriptionStatus
from roamcast.errors import StorageError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.lacl import LaclError
from roamcast.model import Lifecycle
from roamcast.places import Places

WITHIN = "Select all() Where &location in within(stage)"
FIRE = 'Select all() Where &terms has ("fire")'
ON_STAGE = f"{FIRE} Life-control #location in stage"
NEAREST = "Select Where &location in nearest Life-control #location in stage or #role = guard"
GONE = "no place named 'stage' is known here"

STAGE = places(stage=(0, 0, 10, 10))
HALL = places(hall=(0, 0, 1, 1))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    """Ann is on the stage, where she listens in every way, and will hear of fires anywhere."""
    with world(tmp_path, STAGE) as node:
        node.source("a", (0, 0))
        node.subscriber("ann", (5, 5))
        for id, text in (("p", WITHIN), ("q", ON_STAGE), ("r", NEAREST), ("s", FIRE)):
            node.subscribe(id, "ann", text)
        yield node


def restarted(node: World, known: Places) -> list[tuple[str, str, str]]:
    """What a start with these places has the pipeline told."""
    told = len(node.told())
    node.places = known
    node.restart()
    return node.told()[told:]


def status(node: World, id: str) -> SubscriptionStatus:
    return node.control.query(lambda binder: binder.status(id)).result(SECONDS)


STOPPED = [("removal", "ann", "p"), ("removal", "ann", "q"), ("unbinding", "a", "r")]
BACK = [("subscription", "ann", "p"), ("binding", "a", "r"), ("subscription", "ann", "q")]


def test_places_with_new_outlines(node: World) -> None:
    """At the next start the pipeline hears of what runs in them, and life-control goes by them."""
    assert restarted(node, STAGE) == []
    told = restarted(node, places(stage=(20, 20, 30, 30)))
    assert told == [("subscription", "ann", "p"), ("unbinding", "a", "r"), ("removal", "ann", "q")]
    assert SubscriptionBody.from_json(node.journalled()[-3]["body"]).box == (20, 20, 30, 30)
    assert restarted(node, places(stage=(20, 20, 30, 30))) == []


def test_a_place_that_is_gone_stops_what_names_it(node: World, caplog: pytest.LogCaptureFixture) -> None:
    """In whatever way; the node starts, warns, and the pipeline hears of it once."""
    with caplog.at_level(logging.WARNING):
        assert restarted(node, HALL) == STOPPED
    assert f"{GONE} (rooms.geojson): stopped 3 subscriptions" in caplog.text
    assert restarted(node, HALL) == []
    for id in "pqr":
        stands = node.registry.subscription(id).lifecycle
        assert stands is not None
        assert (stands.state, stands.why) == ("stop", GONE)
        seen = status(node, id)
        assert (seen.state.value, seen.why, seen.sources, seen.since) == ("stop", GONE, (), stands.since)
    assert [status(node, id).plan for id in "pqr"] == ["match", "match", "bind"]
    counts = {"start": 0, "active": 1, "inactive": 0, "stop": 3, "bindings": 0, "agents": 0}
    assert node.control.subscription_counts() == counts


def test_nothing_wakes_what_is_stopped(node: World) -> None:
    """Neither moves nor attributes, nor a pipeline that is new."""
    restarted(node, HALL)
    told = len(node.told())
    node.move("ann", 50)
    node.move("ann", 5)
    node.control.set_attributes("ann", {"role": "guard"}).result(SECONDS)
    node.source("b", (5, 5))
    assert node.told()[told:] == []
    node.control.inform_pipeline("new").result(SECONDS)
    assert node.told()[told:] == [("subscription", "ann", "s")]


def test_a_place_that_is_back_lets_all_go_on(node: World) -> None:
    """Bindings are not the first; outlines may be others; what simply ran simply runs."""
    restarted(node, HALL)
    restarted(node, HALL)
    assert restarted(node, places(stage=(0, 0, 20, 20))) == BACK
    (body,) = [row["body"] for row in node.journalled() if row["id"] == "p" and row["body"]][1:]
    assert SubscriptionBody.from_json(body).box == (0, 0, 20, 20)
    assert node.registry.subscription("p").lifecycle is None
    assert (node.state("q"), node.sources("r")) == ("active", ("a",))
    assert node.control.subscription_counts() == {
        "start": 0,
        "active": 4,
        "inactive": 0,
        "stop": 0,
        "bindings": 1,
        "agents": 1,
    }
    assert restarted(node, places(stage=(0, 0, 20, 20))) == []


def test_who_left_the_place_meanwhile_is_told_so(node: World) -> None:
    """What stays stopped has another reason, since the same time."""
    restarted(node, HALL)
    since = node.registry.subscription("q").lifecycle.since  # type: ignore[union-attr]
    node.move("ann", 50)
    assert restarted(node, STAGE) == [("subscription", "ann", "p")]
    assert node.registry.subscription("q").lifecycle == Lifecycle("stop", "ann is not in stage", since, was_active=True)
    assert status(node, "q").why == "ann is not in stage"


def test_one_of_several_places_is_enough(node: World) -> None:
    """The reason names what is missing, and changes with it."""
    text = "Select Where &location in nearest Life-control #location in stage or #location in hall"
    restarted(node, places(stage=(0, 0, 10, 10), hall=(0, 0, 1, 1)))
    node.subscribe("t", "ann", text)
    restarted(node, HALL)
    first = status(node, "t")
    assert (first.state.value, first.why) == ("stop", GONE)
    restarted(node, places())
    assert status(node, "t").why == "no place named 'stage' or 'hall' is known here"
    assert status(node, "t").since == first.since


def test_what_is_stopped_can_be_removed(node: World) -> None:
    """One by one, or with its subscriber; only a bound one has bindings to be forgotten."""
    restarted(node, HALL)
    told = len(node.told())
    for id in "pqr":
        node.control.unsubscribe(id, "ann").result(SECONDS)
    assert node.told()[told:] == [("removal", "ann", "r")]
    assert restarted(node, STAGE) == []
    assert node.control.subscription_counts()["stop"] == 0


def test_a_subscriber_leaves_with_what_is_stopped(node: World) -> None:
    """All of it."""
    restarted(node, HALL)
    told = len(node.told())
    assert sorted(node.control.remove("ann").result(SECONDS)) == ["p", "q", "r", "s"]
    assert sorted(node.told()[told:]) == [("removal", "ann", "r"), ("removal", "ann", "s")]
    assert restarted(node, STAGE) == []


def test_nobody_else_may_name_the_place(node: World) -> None:
    """Though a subscription with the same text is there."""
    restarted(node, HALL)
    with pytest.raises(LaclError, match="no place named 'stage'"):
        node.subscribe("t", "ann", node.registry.subscription("p").text)


def test_a_start_that_could_store_nothing_is_made_up_for(node: World) -> None:
    """By the next one."""
    node.places = HALL
    node.stop()
    told = len(node.told())
    node.registry.refusals = 1
    with pytest.raises(StorageError, match="full"):
        node.start()
    node.start()
    assert node.told()[told:] == STOPPED
