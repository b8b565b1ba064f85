"""The bindery: groups, refusals, restarts; what it stores and what it journals."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from binderies import SECONDS, World, world
from binding import places

from roamcast.bind.messages import Bound
from roamcast.errors import ConflictError, NotFoundError, PermissionDeniedError, StorageError, UnavailableError
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.model import Letter, Position
from roamcast.space import PLANAR
from roamcast.store.values import Binding

NEAREST = "Select Where &location in nearest"
NOISE = "Select anyof() Where &context = noise and &location in rang:loc(10)"
FIRE = 'Select all() Where &terms has ("fire")'
ON_STAGE = f"{FIRE} Life-control #location in stage"
AROUND = "Select all() Where &location in rang:loc(10)"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, places(stage=(0, 0, 10, 10))) as node:
        yield node


def walked(node: World) -> None:
    """Ann hears the nearest of two sources, and walks from one to the other."""
    node.source("a", (0, 0))
    node.source("b", (100, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("q", "ann", f"{NEAREST} On @ > 5 Every 2 s")
    node.move("ann", 99)


WALKED = [("initial", "a", "q"), ("unbinding", "a", "q"), ("binding", "b", "q")]


def test_bindings_are_journalled(node: World) -> None:
    """The first is marked as such; a later one begins when the earlier one ends."""
    walked(node)
    assert node.told() == WALKED
    first, ended, second = node.journalled()
    assert BindingBody.from_json(first["body"]) == BindingBody("ann", "@ > 5", 2_000_000, initial=True)
    assert BindingBody.from_json(second["body"]) == BindingBody("ann", "@ > 5", 2_000_000, initial=False)
    assert first["time"] < ended["time"] == second["time"]


def test_bindings_are_stored(node: World) -> None:
    """What lives, and the history; the standing of the subscription."""
    walked(node)
    (live,) = node.registry.live_bindings()
    assert (live.subscription, live.source) == ("q", "b")
    newest, oldest = node.registry.bindings("q", 10)
    assert (newest.source, oldest.source, oldest.unbound_at) == ("b", "a", newest.bound_at)
    standing = node.registry.subscription("q").standing
    assert standing is not None
    assert (standing.state, standing.why, standing.joined) == ("active", None, True)


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
    """A subscription of the match plan without life-control is journalled, and has no standing."""
    node.subscriber("ann")
    node.subscribe("q", "ann", FIRE)
    (row,) = node.journalled()
    assert (row["kind"], row["entity"], row["id"]) == ("subscription", "ann", "q")
    assert SubscriptionBody.from_json(row["body"]).terms == ("fire",)
    assert node.registry.subscription("q").standing is None
    assert node.bindery.ask(lambda following: "q" in following).result(SECONDS) is False


def test_the_census_counts(node: World) -> None:
    """By state, with those that simply run among the active ones; bindings and agents."""
    walked(node)
    for id, text in (("r", FIRE), ("s", ON_STAGE), ("t", NOISE), ("u", NOISE)):
        node.subscribe(id, "ann", text)
    counts = {"start": 2, "active": 2, "inactive": 0, "stop": 1, "bindings": 1, "agents": 2}
    assert node.bindery.census() == counts
    node.restart()
    assert node.bindery.census() == counts
    for id in "qrstu":
        node.bindery.unsubscribe(id, "ann").result(SECONDS)
    assert node.bindery.census() == dict.fromkeys(counts, 0)


def test_a_restart_changes_nothing(node: World) -> None:
    """Nothing is journalled again; bindings, states and since when stay."""
    walked(node)
    node.subscribe("r", "ann", ON_STAGE)
    before = [node.bindery.ask(lambda f, id=id: f.status(id)).result(SECONDS) for id in "qr"]
    node.restart()
    assert [node.bindery.ask(lambda f, id=id: f.status(id)).result(SECONDS) for id in "qr"] == before
    assert node.told() == WALKED
    node.move("ann", -1)
    assert node.told()[3:] == [("unbinding", "b", "q"), ("binding", "a", "q")]


def test_time_does_not_go_back_over_a_restart(node: World) -> None:
    """A clock that has gone back makes no binding that ends before it began."""
    walked(node)
    node.wall = iter(range(10))
    node.restart()
    node.wall = iter(range(1000))
    node.move("ann", 0)
    times = [row["time"] for row in node.journalled()]
    assert times == sorted(times)
    assert times[-1] > times[-3]


def held(node: World) -> tuple[Event, Event]:
    """The next transaction says that it has come, then waits to be let go."""
    reached, go = Event(), Event()

    def wait() -> None:
        reached.set()
        assert go.wait(SECONDS)
        node.registry.before = lambda: None

    node.registry.before = wait
    return reached, go


def test_what_comes_meanwhile_is_one_group(node: World) -> None:
    """Many requests, one transaction and one append; each gets its own answer, and a refused one harms no other."""
    walked(node)
    for number in range(20):
        node.subscriber(f"s{number}", (number, 0))
    reached, go = held(node)
    first = node.bindery.move([Position("a", 0, 0, node.clock.now())])
    assert reached.wait(SECONDS)
    moves = [node.bindery.move([Position("ann", x, 0, node.clock.now())]) for x in (0, 99, 1)]
    asked = [node.asking(f"p{number}", f"s{number}", NEAREST) for number in range(20)]
    bad: list[Future[Any]] = [
        node.bindery.move([Position("ann", 5, 5, node.clock.now()), Position("nobody", 1, 1, 1)]),
        node.asking("q", "s1", NEAREST),
        node.bindery.unsubscribe("q", "s1"),
        node.bindery.unsubscribe("nothing", "ann"),
    ]
    stale = node.bindery.move([Position("ann", 50, 0, 1)])
    transactions, appends = len(node.registry.transactions), node.journal.appends
    go.set()
    assert [first.result(SECONDS), *(move.result(SECONDS) for move in moves), stale.result(SECONDS)] == [0, 0, 0, 0, 1]
    assert all(one.result(SECONDS) for one in asked)
    errors = [type(one.exception(SECONDS)) for one in bad]
    assert errors == [NotFoundError, ConflictError, PermissionDeniedError, NotFoundError]
    assert (len(node.registry.transactions) - transactions, node.journal.appends - appends) == (2, 1)
    assert node.registry.entity("ann").position == node.bindery.directory.get("ann").position
    assert node.registry.entity("ann").position.x == 1  # type: ignore[union-attr]
    assert node.sources("q") == ("a",)


def test_moves_of_a_group_are_one_batch(node: World) -> None:
    """Only where each is in the end counts: a source passed by in between is not bound."""
    walked(node)
    reached, go = held(node)
    node.bindery.move([Position("a", 0, 0, node.clock.now())])
    assert reached.wait(SECONDS)
    moves = [node.bindery.move([Position("ann", x, 0, node.clock.now())]) for x in (0, 99)]
    go.set()
    assert [move.result(SECONDS) for move in moves] == [0, 0]
    assert node.told() == WALKED


def test_trouble_in_the_binder_is_no_end(node: World) -> None:
    """Whatever goes wrong, who asked hears of it, and the next request finds all as it is stored."""
    walked(node)

    def broken() -> None:
        node.registry.before = lambda: None
        raise ZeroDivisionError

    node.registry.before = broken
    with pytest.raises(ZeroDivisionError):
        node.move("ann", 0)
    assert node.sources("q") == ("b",)


def test_a_subscriber_that_leaves_takes_everything_along(node: World) -> None:
    """Unbindings and removals are journalled, letters erased, and its id is never given again."""
    walked(node)
    node.subscribe("r", "ann", FIRE)
    node.subscribe("s", "ann", f"{FIRE} Life-control #location in box(0, 0, 200, 200)")
    node.mailboxes.register("ann")
    node.mailboxes.deliver([Letter("local.node.ann", "pipeline", 1, "{}")])
    assert node.mailboxes.waiting("ann") == 1
    told = len(node.told())
    assert sorted(node.bindery.leave("ann").result(SECONDS)) == ["q", "r", "s"]
    ended = node.told()[told:]
    assert sorted(ended) == [*(("removal", "ann", id) for id in "qrs"), ("unbinding", "b", "q")]
    assert ended.index(("unbinding", "b", "q")) < ended.index(("removal", "ann", "q"))
    assert node.registry.subscriptions() == []
    assert node.mailboxes.waiting("ann") == 0
    for _ in range(2):
        with pytest.raises(ConflictError, match="left"):
            node.subscriber("ann")
        node.restart()
    node.mailboxes.deliver([Letter("local.node.ann", "pipeline", 2, "{}")])
    assert node.mailboxes.waiting("ann") == 0


def test_a_source_that_leaves_is_replaced(node: World) -> None:
    """Its bindings end; when it comes back it is bound again, not for the first time."""
    walked(node)
    node.bindery.leave("b").result(SECONDS)
    assert node.sources("q") == ("a",)
    node.source("b", (99, 0))
    changes = [("unbinding", "b", "q"), ("binding", "a", "q"), ("unbinding", "a", "q"), ("binding", "b", "q")]
    assert node.told() == WALKED + changes


def test_unsubscribing_unbinds(node: World) -> None:
    """The pipeline hears the end of each binding, then of all of them, the past ones too; the history goes."""
    walked(node)
    node.bindery.unsubscribe("q", "ann").result(SECONDS)
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
    node.bindery.unsubscribe("q", "ann").result(SECONDS)
    assert node.told() == [("initial", "a", "q"), ("unbinding", "a", "q"), ("removal", "ann", "q")]


def test_the_ends_of_the_plane_are_good_places(node: World) -> None:
    """Whatever the space takes, the binder can hold, and measure."""
    far = PLANAR.x_limit
    node.source("a", (far, far))
    node.source("b", (-far, -far))
    node.subscriber("ann", (far, -far / 2))
    node.subscribe("q", "ann", NEAREST)
    node.subscribe("r", "ann", f"Select remoteof() Where &location in rang:loc({4 * far})")
    node.subscribe("s", "ann", f"{FIRE} Life-control #location in circle({far}, {far}, {far})")
    assert (node.sources("q"), node.sources("r"), node.state("s")) == (("a",), ("b",), "stop")
    node.move("ann", -far, -far)
    assert (node.sources("q"), node.sources("r")) == (("b",), ("a",))
    node.move("ann", far, 0)
    assert (node.sources("q"), node.state("s")) == (("a",), "active")


def test_attributes_decide(node: World) -> None:
    """A source that takes on what is asked for is bound, and lost again."""
    node.source("a", (0, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("q", "ann", NOISE)
    assert node.state("q") == "start"
    node.bindery.change("a", {"context": "noise"}).result(SECONDS)
    assert (node.state("q"), node.bindery.directory.attributes_text("a")) == ("active", '{"context":"noise"}')
    node.bindery.change("a", {}).result(SECONDS)
    assert (node.state("q"), node.bindery.directory.attributes_text("a")) == ("inactive", None)
    assert node.told() == [("initial", "a", "q"), ("unbinding", "a", "q")]


def test_the_same_subscription_again_is_harmless(node: World) -> None:
    """However it is written; anything else under its id is refused."""
    node.subscriber("ann")
    node.subscriber("bob")
    assert node.subscribe("q", "ann", "select where &location in nearest") is True
    assert node.subscribe("q", "ann", NEAREST) is False
    for subscriber, text in (("ann", NOISE), ("bob", NEAREST)):
        with pytest.raises(ConflictError):
            node.subscribe("q", subscriber, text)


def test_equal_expressions_share_one_agent(node: World) -> None:
    """A thousand subscriptions, one agent."""
    node.subscriber("ann", (0, 0))
    asked = [node.asking(f"q{number}", "ann", NOISE) for number in range(1000)]
    assert all(one.result(SECONDS) for one in asked)
    assert node.bindery.census()["agents"] == 1


def test_a_new_pipeline_is_told_everything_in_force(node: World) -> None:
    """What runs and what is bound, with the original times and never as the first; once for each pipeline."""
    walked(node)
    node.subscribe("r", "ann", FIRE)
    node.subscribe("s", "ann", ON_STAGE)
    told, (live,) = len(node.told()), node.registry.live_bindings()
    for pipeline in ("one", "one", "two"):
        node.bindery.tell(pipeline).result(SECONDS)
    assert node.told()[told:] == [("subscription", "ann", "r"), ("binding", "b", "q")] * 2
    assert node.journalled()[-1]["time"].timestamp() == pytest.approx(live.at / 1e6)


def test_a_pipeline_that_could_not_be_told_is_told_again(node: World) -> None:
    """From the beginning."""
    walked(node)
    told = len(node.told())
    node.journal.refusals = 1
    with pytest.raises(StorageError):
        node.bindery.tell("one").result(SECONDS)
    node.bindery.tell("one").result(SECONDS)
    assert node.told()[told:] == [("binding", "b", "q")]


def test_old_history_is_forgotten(node: World) -> None:
    """An hour here; what lives stays."""
    walked(node)
    (live,) = node.registry.live_bindings()
    later = live.at + 2 * 3_600_000_000
    node.wall = iter(range(later, later + 1000))
    node.restart()
    node.move("ann", 98)
    node.bindery.close()
    assert node.registry.bindings("q", 10) == [Binding("q", "b", live.at, None)]
    assert node.registry.live_bindings() == [Bound("q", "b", live.at)]


def test_a_closed_bindery_refuses(node: World) -> None:
    """Nobody waits for ever."""
    node.bindery.close()
    with pytest.raises(UnavailableError):
        node.move("ann", 1)


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
    assert SubscriptionBody.from_json(asked["body"]) == SubscriptionBody(None, (), space="planar", around=10.0)
    assert (place["entity"], place["y"], place["id"]) == ("ann", 0.0, None)


def test_moves_are_told_while_a_region_runs(node: World) -> None:
    """Before the first and after the last they are nobody's business; one that is too old is not told either."""
    node.subscriber("ann", (0, 0))
    node.move("ann", 1)
    node.subscribe("q", "ann", AROUND)
    node.subscribe("r", "ann", AROUND)
    node.bindery.unsubscribe("q", "ann").result(SECONDS)
    node.move("ann", 2)
    node.bindery.move([Position("ann", 99, 0, 1)]).result(SECONDS)
    node.bindery.unsubscribe("r", "ann").result(SECONDS)
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
    node.bindery.change("ann", {"role": "guard"}).result(SECONDS)
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
    node.bindery.tell("new").result(SECONDS)
    assert whereabouts(node)[told:] == [
        ("subscription", "p"), ("position", 5.0), ("subscription", "q"), ("subscription", "r"),
    ]  # fmt: skip
