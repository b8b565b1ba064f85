"""Places whose polygons change, that disappear, and that come back."""

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
    """Ann is on the stage and has subscriptions of every plan that name it, and one that does not."""
    with world(tmp_path, STAGE) as node:
        node.source("a", (0, 0))
        node.subscriber("ann", (5, 5))
        for id, text in (("p", WITHIN), ("q", ON_STAGE), ("r", NEAREST), ("s", FIRE)):
            node.subscribe(id, "ann", text)
        yield node


def records_after_restart(node: World, known: Places) -> list[tuple[str, str, str]]:
    """The records journalled by a start with these places."""
    before = len(node.control_records())
    node.places = known
    node.restart()
    return node.control_records()[before:]


def status(node: World, id: str) -> SubscriptionStatus:
    return node.control.query(lambda adapter: adapter.status(id)).result(SECONDS)


STOPPED = [("removal", "ann", "p"), ("removal", "ann", "q"), ("unbinding", "a", "r")]
BACK = [("subscription", "ann", "p"), ("binding", "a", "r"), ("subscription", "ann", "q")]


def test_new_polygons_reach_pipeline_and_binder(node: World) -> None:
    """At the next start the pipeline gets running subscriptions again, and life-control uses the new polygons."""
    assert records_after_restart(node, STAGE) == []
    assert records_after_restart(node, places(stage=(20, 20, 30, 30))) == [
        ("subscription", "ann", "p"),
        ("unbinding", "a", "r"),
        ("removal", "ann", "q"),
    ]
    assert SubscriptionBody.from_json(node.journalled()[-3]["body"]).box == (20, 20, 30, 30)
    assert records_after_restart(node, places(stage=(20, 20, 30, 30))) == []


def test_a_missing_place_stops_its_subscriptions(node: World, caplog: pytest.LogCaptureFixture) -> None:
    """The node starts and warns, and the pipeline gets the removals once."""
    with caplog.at_level(logging.WARNING):
        assert records_after_restart(node, HALL) == STOPPED
    assert f"{GONE} (rooms.geojson): stopped 3 subscriptions" in caplog.text
    assert records_after_restart(node, HALL) == []
    for id in "pqr":
        stands = node.registry.subscription(id).lifecycle
        assert stands is not None
        assert (stands.state, stands.why) == ("stop", GONE)
        seen = status(node, id)
        assert (seen.state.value, seen.why, seen.sources, seen.since) == ("stop", GONE, (), stands.since)
    assert [status(node, id).plan for id in "pqr"] == ["match", "match", "bind"]
    counts = {"start": 0, "active": 1, "inactive": 0, "stop": 3, "bindings": 0, "agents": 0}
    assert node.control.subscription_counts() == counts


def test_nothing_activates_a_stopped_subscription(node: World) -> None:
    """Neither moves nor attributes nor a new pipeline."""
    records_after_restart(node, HALL)
    before = len(node.control_records())
    node.move("ann", 50)
    node.move("ann", 5)
    node.control.set_attributes("ann", {"role": "guard"}).result(SECONDS)
    node.source("b", (5, 5))
    assert node.control_records()[before:] == []
    node.control.inform_pipeline("new").result(SECONDS)
    assert node.control_records()[before:] == [("subscription", "ann", "s")]


def test_a_place_that_is_back_resumes_its_subscriptions(node: World) -> None:
    """Bindings are not marked as initial. Polygons may differ. Subscriptions without a lifecycle have none again."""
    records_after_restart(node, HALL)
    records_after_restart(node, HALL)
    assert records_after_restart(node, places(stage=(0, 0, 20, 20))) == BACK
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
    assert records_after_restart(node, places(stage=(0, 0, 20, 20))) == []


def test_the_reason_changes_if_the_subscriber_has_left_the_place(node: World) -> None:
    """A subscription that stays stopped gets the new reason and keeps its time."""
    records_after_restart(node, HALL)
    since = node.registry.subscription("q").lifecycle.since  # type: ignore[union-attr]
    node.move("ann", 50)
    assert records_after_restart(node, STAGE) == [("subscription", "ann", "p")]
    assert node.registry.subscription("q").lifecycle == Lifecycle("stop", "ann is not in stage", since, was_active=True)
    assert status(node, "q").why == "ann is not in stage"


def test_one_missing_place_of_several_stops_a_subscription(node: World) -> None:
    """The reason names the missing places, and changes with them."""
    text = "Select Where &location in nearest Life-control #location in stage or #location in hall"
    records_after_restart(node, places(stage=(0, 0, 10, 10), hall=(0, 0, 1, 1)))
    node.subscribe("t", "ann", text)
    records_after_restart(node, HALL)
    first = status(node, "t")
    assert (first.state.value, first.why) == ("stop", GONE)
    records_after_restart(node, places())
    assert status(node, "t").why == "no place named 'stage' or 'hall' is known here"
    assert status(node, "t").since == first.since


def test_stopped_subscriptions_can_be_removed(node: World) -> None:
    """Only one of plan bind has past bindings to remove."""
    records_after_restart(node, HALL)
    before = len(node.control_records())
    for id in "pqr":
        node.control.unsubscribe(id, "ann").result(SECONDS)
    assert node.control_records()[before:] == [("removal", "ann", "r")]
    assert records_after_restart(node, STAGE) == []
    assert node.control.subscription_counts()["stop"] == 0


def test_removing_a_subscriber_removes_its_stopped_subscriptions(node: World) -> None:
    records_after_restart(node, HALL)
    before = len(node.control_records())
    assert sorted(node.control.remove("ann").result(SECONDS)) == ["p", "q", "r", "s"]
    assert sorted(node.control_records()[before:]) == [("removal", "ann", "r"), ("removal", "ann", "s")]
    assert records_after_restart(node, STAGE) == []


def test_new_subscriptions_cannot_name_a_missing_place(node: World) -> None:
    """Even if an existing subscription has the same text."""
    records_after_restart(node, HALL)
    with pytest.raises(LaclError, match="no place named 'stage'"):
        node.subscribe("t", "ann", node.registry.subscription("p").text)


def test_the_next_start_repeats_what_could_not_be_stored(node: World) -> None:
    node.places = HALL
    node.stop()
    before = len(node.control_records())
    node.registry.refusals = 1
    with pytest.raises(StorageError, match="full"):
        node.start()
    node.start()
    assert node.control_records()[before:] == STOPPED
