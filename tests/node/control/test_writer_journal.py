"""What the control journals: bindings and their ends, what runs, and where regions are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from binding import places
from control_writers import FIRE, NEAREST, ON_STAGE, SECONDS, WALKED, World, walked, world
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
    """The first is marked as such; a later one begins when the earlier one ends."""
    walked(node)
    assert node.told() == WALKED
    first, ended, second = node.journalled()
    assert BindingBody.from_json(first["body"]) == BindingBody("ann", condition("@ > 5"), 2_000_000, initial=True)
    assert BindingBody.from_json(second["body"]) == BindingBody("ann", condition("@ > 5"), 2_000_000, initial=False)
    assert first["time"] < ended["time"] == second["time"]


def test_all_first_sources_are_initial(node: World) -> None:
    """Those that nearest(k) finds at once are; one that comes later is not."""
    for id, x in (("a", 1), ("b", 2)):
        node.source(id, (x, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("q", "ann", "Select Where &location in nearest(3)")
    node.source("c", (3, 0))
    assert node.told() == [("initial", "a", "q"), ("initial", "b", "q"), ("binding", "c", "q")]


def test_life_control_stops_and_starts(node: World) -> None:
    """Coming back binds again, not for the first time; the match plan is told and taken back."""
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
    assert node.told() == began + left + again


def test_what_simply_runs_is_no_business_of_the_binder(node: World) -> None:
    """A subscription of the match plan without life-control is journalled, and has no lifecycle."""
    node.subscriber("ann")
    node.subscribe("q", "ann", FIRE)
    (row,) = node.journalled()
    assert (row["kind"], row["entity"], row["id"]) == ("subscription", "ann", "q")
    assert SubscriptionBody.from_json(row["body"]).terms == ("fire",)
    assert node.registry.subscription("q").lifecycle is None
    assert node.control.query(lambda binder: "q" in binder).result(SECONDS) is False


def test_a_source_that_leaves_is_replaced(node: World) -> None:
    """Its bindings end; when it comes back it is bound again, not for the first time."""
    walked(node)
    node.control.remove("b").result(SECONDS)
    assert node.sources("q") == ("a",)
    node.source("b", (99, 0))
    changes = [("unbinding", "b", "q"), ("binding", "a", "q"), ("unbinding", "a", "q"), ("binding", "b", "q")]
    assert node.told() == WALKED + changes


def test_unsubscribing_unbinds(node: World) -> None:
    """The pipeline hears the end of each binding, then of all of them, the past ones too; the history goes."""
    walked(node)
    node.control.unsubscribe("q", "ann").result(SECONDS)
    assert node.told() == [*WALKED, ("unbinding", "b", "q"), ("removal", "ann", "q")]
    ended, removed = node.journalled()[-2:]
    assert ended["time"] == removed["time"]
    assert node.registry.bindings("q", 10) == []
    assert node.subscribe("q", "ann", NEAREST) is True
    assert node.told()[-1] == ("initial", "b", "q")


def test_what_has_no_source_any_more_is_removed_too(node: World) -> None:
    """Events that happened while it had one may still come."""
    node.source("a", (0, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("q", "ann", "Select nearof() Where &location in rang:loc(5)")
    node.move("ann", 50)
    node.control.unsubscribe("q", "ann").result(SECONDS)
    assert node.told() == [("initial", "a", "q"), ("unbinding", "a", "q"), ("removal", "ann", "q")]


def test_a_new_pipeline_is_told_everything_in_force(node: World) -> None:
    """What runs and what is bound, with the original times and never as the first; once for each pipeline."""
    walked(node)
    node.subscribe("r", "ann", FIRE)
    node.subscribe("s", "ann", ON_STAGE)
    told, (live,) = len(node.told()), node.registry.live_bindings()
    for pipeline in ("one", "one", "two"):
        node.control.inform_pipeline(pipeline).result(SECONDS)
    assert node.told()[told:] == [("subscription", "ann", "r"), ("binding", "b", "q")] * 2
    assert node.journalled()[-1]["time"].timestamp() == pytest.approx(live.at / 1e6)


def test_a_pipeline_that_could_not_be_told_is_told_again(node: World) -> None:
    """From the beginning."""
    walked(node)
    told = len(node.told())
    node.journal.refusals = 1
    with pytest.raises(StorageError):
        node.control.inform_pipeline("one").result(SECONDS)
    node.control.inform_pipeline("one").result(SECONDS)
    assert node.told()[told:] == [("binding", "b", "q")]


def whereabouts(node: World) -> list[tuple[str, str | float]]:
    """(kind, id) of every record, and (kind, x) of a position."""
    return [(row["kind"], row["x"] if row["kind"] == "position" else row["id"]) for row in node.journalled()]


def test_where_a_region_is_follows_its_subscription(node: World) -> None:
    """Right after it, if it is known; otherwise with the first move."""
    node.subscriber("ann", (3, 0))
    node.subscriber("bob")
    node.subscribe("q", "ann", AROUND)
    node.subscribe("r", "bob", AROUND)
    node.move("bob", 7)
    assert whereabouts(node) == [("subscription", "q"), ("position", 3.0), ("subscription", "r"), ("position", 7.0)]
    asked, place = node.journalled()[:2]
    assert SubscriptionBody.from_json(asked["body"]) == SubscriptionBody(None, (), space="planar", moving_radius=10.0)
    assert (place["entity"], place["y"], place["id"]) == ("ann", 0.0, None)


def test_moves_are_told_while_a_region_runs(node: World) -> None:
    """Before the first and after the last they are nobody's business; one that is too old is not told either."""
    node.subscriber("ann", (0, 0))
    node.move("ann", 1)
    node.subscribe("q", "ann", AROUND)
    node.subscribe("r", "ann", AROUND)
    node.control.unsubscribe("q", "ann").result(SECONDS)
    node.move("ann", 2)
    node.control.move([Position("ann", 99, 0, 1)]).result(SECONDS)
    node.control.unsubscribe("r", "ann").result(SECONDS)
    node.move("ann", 3)
    assert whereabouts(node) == [
        ("subscription", "q"), ("position", 1.0), ("subscription", "r"), ("position", 1.0), ("removal", "q"),
        ("position", 2.0), ("removal", "r"),
    ]  # fmt: skip


def test_moves_are_told_after_a_restart(node: World) -> None:
    """With a life-control and without."""
    node.subscriber("ann", (5, 5))
    node.subscriber("bob", (5, 5))
    node.subscribe("q", "ann", AROUND)
    node.subscribe("r", "bob", f"{AROUND} Life-control #location in stage")
    told = len(node.told())
    node.restart()
    node.move("ann", 6)
    node.move("bob", 7, 7)
    assert whereabouts(node)[told:] == [("position", 6.0), ("position", 7.0)]


def test_life_control_starts_a_region_where_its_subscriber_is(node: World) -> None:
    """By a move or by an attribute; while it is stopped, moves are not told."""
    node.subscriber("ann", (50, 0))
    node.subscribe("q", "ann", f"{AROUND} Life-control #location in stage or #role = guard")
    node.move("ann", 5)
    node.move("ann", 60)
    node.move("ann", 70)
    node.control.set_attributes("ann", {"role": "guard"}).result(SECONDS)
    told = whereabouts(node)
    assert told[0] == ("subscription", "q")
    assert set(told[1:-3]) == {("position", 5.0)}
    assert told[-3:] == [("removal", "q"), ("subscription", "q"), ("position", 70.0)]


def test_a_new_pipeline_is_told_where_regions_are(node: World) -> None:
    """After each that runs."""
    node.subscriber("ann", (5, 0))
    node.subscriber("bob")
    for id, subscriber in (("p", "ann"), ("q", "bob")):
        node.subscribe(id, subscriber, AROUND)
    node.subscribe("r", "ann", FIRE)
    told = len(node.told())
    node.control.inform_pipeline("new").result(SECONDS)
    assert whereabouts(node)[told:] == [
        ("subscription", "p"), ("position", 5.0), ("subscription", "q"), ("subscription", "r"),
    ]  # fmt: skip
