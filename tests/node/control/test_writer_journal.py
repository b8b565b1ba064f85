"""What the control writer journals: bindings, subscriptions, and positions of moving regions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from binding import places
from control_writers import FIRE, NEAREST, ON_STAGE, SECONDS, WALK_RECORDS, World, walk, world
from controls import condition

from roamcast.errors import StorageError
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.model import Position

AROUND = "Select all() Where &location in rang:loc(10)"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, places(stage=(0, 0, 10, 10))) as node:
        yield node


def test_bindings_are_journalled(node: World) -> None:
    """The first is marked as initial; a later one begins when the earlier one ends."""
    walk(node)
    assert node.control_records() == WALK_RECORDS
    first, ended, second = node.journalled()
    assert BindingBody.from_json(first["body"]) == BindingBody("ann", condition("@ > 5"), 2_000_000, initial=True)
    assert BindingBody.from_json(second["body"]) == BindingBody("ann", condition("@ > 5"), 2_000_000, initial=False)
    assert first["time"] < ended["time"] == second["time"]


def test_all_bindings_of_the_first_search_are_initial(node: World) -> None:
    """Those that nearest(k) finds at once; not a later one."""
    for id, x in (("a", 1), ("b", 2)):
        node.source(id, (x, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("q", "ann", "Select Where &location in nearest(3)")
    node.source("c", (3, 0))
    assert node.control_records() == [("initial", "a", "q"), ("initial", "b", "q"), ("binding", "c", "q")]


def test_life_control_journals_stops_and_starts(node: World) -> None:
    """A new binding after a stop is not initial. Plan match journals subscription and removal."""
    node.source("a", (0, 0))
    node.subscriber("ann", (5, 5))
    node.subscribe("p", "ann", f"{NEAREST} Life-control #location in stage")
    node.subscribe("q", "ann", ON_STAGE)
    node.move("ann", 50)
    assert (node.state("p"), node.state("q")) == ("stop", "stop")
    node.move("ann", 5)
    began = [("initial", "a", "p"), ("subscription", "ann", "q")]
    left = [("unbinding", "a", "p"), ("removal", "ann", "q")]
    again = [("binding", "a", "p"), ("subscription", "ann", "q")]
    assert node.control_records() == began + left + again


def test_plan_match_without_life_control_has_no_lifecycle(node: World) -> None:
    """It is journalled, and the binder does not have it."""
    node.subscriber("ann")
    node.subscribe("q", "ann", FIRE)
    (row,) = node.journalled()
    assert (row["kind"], row["entity"], row["id"]) == ("subscription", "ann", "q")
    assert SubscriptionBody.from_json(row["body"]).terms == ("fire",)
    assert node.registry.subscription("q").lifecycle is None
    assert node.control.query(lambda adapter: "q" in adapter).result(SECONDS) is False


def test_a_removed_source_is_replaced(node: World) -> None:
    """Its bindings end. When it is back, it is bound again, and not as initial."""
    walk(node)
    node.control.remove("b").result(SECONDS)
    assert node.sources("q") == ("a",)
    node.source("b", (99, 0))
    changes = [("unbinding", "b", "q"), ("binding", "a", "q"), ("unbinding", "a", "q"), ("binding", "b", "q")]
    assert node.control_records() == WALK_RECORDS + changes


def test_unsubscribing_unbinds(node: World) -> None:
    """The pipeline gets the end of each binding, then the removal; the history is deleted."""
    walk(node)
    node.control.unsubscribe("q", "ann").result(SECONDS)
    assert node.control_records() == [*WALK_RECORDS, ("unbinding", "b", "q"), ("removal", "ann", "q")]
    ended, removed = node.journalled()[-2:]
    assert ended["time"] == removed["time"]
    assert node.registry.bindings("q", 10) == []
    assert node.subscribe("q", "ann", NEAREST) is True
    assert node.control_records()[-1] == ("initial", "b", "q")


def test_a_subscription_without_source_is_removed_too(node: World) -> None:
    """Late events of its past binding may still arrive."""
    node.source("a", (0, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("q", "ann", "Select nearof() Where &location in rang:loc(5)")
    node.move("ann", 50)
    node.control.unsubscribe("q", "ann").result(SECONDS)
    assert node.control_records() == [("initial", "a", "q"), ("unbinding", "a", "q"), ("removal", "ann", "q")]


def test_a_new_pipeline_gets_everything_in_force(node: World) -> None:
    """Subscriptions and bindings, with the original times and never as initial; once for each pipeline."""
    walk(node)
    node.subscribe("r", "ann", FIRE)
    node.subscribe("s", "ann", ON_STAGE)
    before, (live,) = len(node.control_records()), node.registry.live_bindings()
    for pipeline in ("one", "one", "two"):
        node.control.inform_pipeline(pipeline).result(SECONDS)
    assert node.control_records()[before:] == [("subscription", "ann", "r"), ("binding", "b", "q")] * 2
    assert node.journalled()[-1]["time"].timestamp() == pytest.approx(live.at / 1e6)


def test_informing_a_pipeline_is_repeated_after_a_failure(node: World) -> None:
    """From the beginning."""
    walk(node)
    before = len(node.control_records())
    node.journal.refusals = 1
    with pytest.raises(StorageError):
        node.control.inform_pipeline("one").result(SECONDS)
    node.control.inform_pipeline("one").result(SECONDS)
    assert node.control_records()[before:] == [("binding", "b", "q")]


def records(node: World) -> list[tuple[str, str | float]]:
    """(kind, id) of every record, and (kind, x) of a position."""
    return [(row["kind"], row["x"] if row["kind"] == "position" else row["id"]) for row in node.journalled()]


def test_the_position_of_a_moving_region_follows_its_subscription(node: World) -> None:
    """Directly, if it is known; otherwise with the first move."""
    node.subscriber("ann", (3, 0))
    node.subscriber("bob")
    node.subscribe("q", "ann", AROUND)
    node.subscribe("r", "bob", AROUND)
    node.move("bob", 7)
    assert records(node) == [("subscription", "q"), ("position", 3.0), ("subscription", "r"), ("position", 7.0)]
    subscription, position = node.journalled()[:2]
    assert SubscriptionBody.from_json(subscription["body"]) == SubscriptionBody(
        None, (), space="planar", moving_radius=10.0
    )
    assert (position["entity"], position["y"], position["id"]) == ("ann", 0.0, None)


def test_moves_are_journalled_while_a_moving_region_is_active(node: World) -> None:
    """Not before the first or after the last, and not if they are stale."""
    node.subscriber("ann", (0, 0))
    node.move("ann", 1)
    node.subscribe("q", "ann", AROUND)
    node.subscribe("r", "ann", AROUND)
    node.control.unsubscribe("q", "ann").result(SECONDS)
    node.move("ann", 2)
    node.control.move([Position("ann", 99, 0, 1)]).result(SECONDS)
    node.control.unsubscribe("r", "ann").result(SECONDS)
    node.move("ann", 3)
    assert records(node) == [
        ("subscription", "q"), ("position", 1.0), ("subscription", "r"), ("position", 1.0), ("removal", "q"),
        ("position", 2.0), ("removal", "r"),
    ]  # fmt: skip


def test_moves_are_journalled_after_a_restart(node: World) -> None:
    """With life-control and without."""
    node.subscriber("ann", (5, 5))
    node.subscriber("bob", (5, 5))
    node.subscribe("q", "ann", AROUND)
    node.subscribe("r", "bob", f"{AROUND} Life-control #location in stage")
    before = len(node.control_records())
    node.restart()
    node.move("ann", 6)
    node.move("bob", 7, 7)
    assert records(node)[before:] == [("position", 6.0), ("position", 7.0)]


def test_life_control_activates_a_moving_region_at_its_subscriber(node: World) -> None:
    """By a move or by an attribute. While it is stopped, moves are not journalled."""
    node.subscriber("ann", (50, 0))
    node.subscribe("q", "ann", f"{AROUND} Life-control #location in stage or #role = guard")
    node.move("ann", 5)
    node.move("ann", 60)
    node.move("ann", 70)
    node.control.set_attributes("ann", {"role": "guard"}).result(SECONDS)
    journalled = records(node)
    assert journalled[0] == ("subscription", "q")
    assert set(journalled[1:-3]) == {("position", 5.0)}
    assert journalled[-3:] == [("removal", "q"), ("subscription", "q"), ("position", 70.0)]


def test_a_new_pipeline_gets_positions_of_moving_regions(node: World) -> None:
    """After each active subscription."""
    node.subscriber("ann", (5, 0))
    node.subscriber("bob")
    for id, subscriber in (("p", "ann"), ("q", "bob")):
        node.subscribe(id, subscriber, AROUND)
    node.subscribe("r", "ann", FIRE)
    before = len(node.control_records())
    node.control.inform_pipeline("new").result(SECONDS)
    assert records(node)[before:] == [
        ("subscription", "p"), ("position", 5.0), ("subscription", "q"), ("subscription", "r"),
    ]  # fmt: skip


def test_moves_have_bodies_if_there_are_peers(node: World) -> None:
    """A position that is journalled again has none: it is known. One that comes with a region that a move starts has.

    Otherwise the other regions of the subscriber would forget where they were.
    """
    node.subscriber("ann", (50, 0))
    node.subscribe("q", "ann", AROUND)
    node.move("ann", 40)
    node.control.peer_wants.own._linked_peers = lambda: ["south"]
    node.subscribe("r", "ann", f"{AROUND} Life-control #location in stage")
    node.subscribe("s", "ann", AROUND)
    node.move("ann", 5)
    node.control.inform_pipeline("new").result(SECONDS)
    assert [(row["x"], row["body"] is not None) for row in node.journalled() if row["kind"] == "position"] == [
        (50.0, False), (40.0, False), (40.0, False), (5.0, True), (5.0, True), *[(5.0, False)] * 3,
    ]  # fmt: skip
