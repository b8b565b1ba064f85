"""The control writer: groups, refusals, restarts, and what it stores."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from binding import places
from control_writers import FIRE, NEAREST, NOISE, ON_STAGE, SECONDS, WALK_RECORDS, World, walk, world

from roamcast.bind.lcesm.messages import Bound
from roamcast.errors import ConflictError, NotFoundError, PermissionDeniedError, UnavailableError
from roamcast.model import Letter, Position
from roamcast.space import PLANAR
from roamcast.store.registry.values import Binding


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, places(stage=(0, 0, 10, 10))) as node:
        yield node


def test_bindings_are_stored(node: World) -> None:
    """Live ones, the history, and the lifecycle of the subscription."""
    walk(node)
    (live,) = node.registry.live_bindings()
    assert (live.subscription, live.source) == ("q", "b")
    newest, oldest = node.registry.bindings("q", 10)
    assert (newest.source, oldest.source, oldest.unbound_at) == ("b", "a", newest.bound_at)
    lifecycle = node.registry.subscription("q").lifecycle
    assert lifecycle is not None
    assert (lifecycle.state, lifecycle.why, lifecycle.was_active) == ("active", None, True)


def test_subscriptions_are_counted_by_state(node: World) -> None:
    """Those without a lifecycle count as active. Bindings and agents are counted too."""
    walk(node)
    for id, text in (("r", FIRE), ("s", ON_STAGE), ("t", NOISE), ("u", NOISE)):
        node.subscribe(id, "ann", text)
    counts = {"start": 2, "active": 2, "inactive": 0, "stop": 1, "bindings": 1, "agents": 2}
    assert node.control.subscription_counts() == counts
    node.restart()
    assert node.control.subscription_counts() == counts
    for id in "qrstu":
        node.control.unsubscribe(id, "ann").result(SECONDS)
    assert node.control.subscription_counts() == dict.fromkeys(counts, 0)


def test_a_restart_changes_nothing(node: World) -> None:
    """Nothing is journalled again; bindings, states and their times stay."""
    walk(node)
    node.subscribe("r", "ann", ON_STAGE)
    before = [node.control.query(lambda f, id=id: f.status(id)).result(SECONDS) for id in "qr"]
    node.restart()
    assert [node.control.query(lambda f, id=id: f.status(id)).result(SECONDS) for id in "qr"] == before
    assert node.control_records() == WALK_RECORDS
    node.move("ann", -1)
    assert node.control_records()[3:] == [("unbinding", "b", "q"), ("binding", "a", "q")]


def test_time_does_not_go_back_over_a_restart(node: World) -> None:
    """A system clock that went back makes no binding that ends before it begins."""
    walk(node)
    node.wall = iter(range(10))
    node.restart()
    node.wall = iter(range(1000))
    node.move("ann", 0)
    times = [row["time"] for row in node.journalled()]
    assert times == sorted(times)
    assert times[-1] > times[-3]


def hold_next_transaction(node: World) -> tuple[Event, Event]:
    """The next transaction sets the first event, then waits for the second."""
    reached, go = Event(), Event()

    def wait() -> None:
        reached.set()
        assert go.wait(SECONDS)
        node.registry.before = lambda: None

    node.registry.before = wait
    return reached, go


def test_requests_that_arrive_meanwhile_form_one_group(node: World) -> None:
    """One transaction and one append. Each gets its own result, and a refused one affects no other."""
    walk(node)
    for number in range(20):
        node.subscriber(f"s{number}", (number, 0))
    reached, go = hold_next_transaction(node)
    first = node.control.move([Position("a", 0, 0, node.clock.now())])
    assert reached.wait(SECONDS)
    moves = [node.control.move([Position("ann", x, 0, node.clock.now())]) for x in (0, 99, 1)]
    submitted = [node.submit_subscription(f"p{number}", f"s{number}", NEAREST) for number in range(20)]
    bad: list[Future[Any]] = [
        node.control.move([Position("ann", 5, 5, node.clock.now()), Position("nobody", 1, 1, 1)]),
        node.submit_subscription("q", "s1", NEAREST),
        node.control.unsubscribe("q", "s1"),
        node.control.unsubscribe("nothing", "ann"),
    ]
    stale = node.control.move([Position("ann", 50, 0, 1)])
    transactions, appends = len(node.registry.transactions), node.journal.appends
    go.set()
    assert [first.result(SECONDS), *(move.result(SECONDS) for move in moves), stale.result(SECONDS)] == [0, 0, 0, 0, 1]
    assert all(one.result(SECONDS) for one in submitted)
    errors = [type(one.exception(SECONDS)) for one in bad]
    assert errors == [NotFoundError, ConflictError, PermissionDeniedError, NotFoundError]
    assert (len(node.registry.transactions) - transactions, node.journal.appends - appends) == (2, 1)
    assert node.registry.entity("ann").position == node.control.entities.get("ann").position
    assert node.registry.entity("ann").position.x == 1  # type: ignore[union-attr]
    assert node.sources("q") == ("a",)


def test_moves_of_a_group_are_one_batch(node: World) -> None:
    """Only final positions count: a source passed in between is not bound."""
    walk(node)
    reached, go = hold_next_transaction(node)
    node.control.move([Position("a", 0, 0, node.clock.now())])
    assert reached.wait(SECONDS)
    moves = [node.control.move([Position("ann", x, 0, node.clock.now())]) for x in (0, 99)]
    go.set()
    assert [move.result(SECONDS) for move in moves] == [0, 0]
    assert node.control_records() == WALK_RECORDS


def test_an_unexpected_error_does_not_stop_the_writer(node: World) -> None:
    """The caller gets the error, and the next request finds the stored state."""
    walk(node)

    def broken() -> None:
        node.registry.before = lambda: None
        raise ZeroDivisionError

    node.registry.before = broken
    with pytest.raises(ZeroDivisionError):
        node.move("ann", 0)
    assert node.sources("q") == ("b",)


def test_removing_a_subscriber_removes_everything_of_it(node: World) -> None:
    """Unbindings and removals are journalled, letters erased, and its id is never given again."""
    walk(node)
    node.subscribe("r", "ann", FIRE)
    node.subscribe("s", "ann", f"{FIRE} Life-control #location in box(0, 0, 200, 200)")
    node.mailboxes.register("ann")
    node.mailboxes.deliver([Letter("local.node.ann", "pipeline", 1, "{}")])
    assert node.mailboxes.waiting("ann") == 1
    before = len(node.control_records())
    assert sorted(node.control.remove("ann").result(SECONDS)) == ["q", "r", "s"]
    ended = node.control_records()[before:]
    assert sorted(ended) == [*(("removal", "ann", id) for id in "qrs"), ("unbinding", "b", "q")]
    assert ended.index(("unbinding", "b", "q")) < ended.index(("removal", "ann", "q"))
    assert node.registry.subscriptions() == []
    assert node.mailboxes.waiting("ann") == 0
    for _ in range(2):
        with pytest.raises(ConflictError, match="was removed"):
            node.subscriber("ann")
        node.restart()
    node.mailboxes.deliver([Letter("local.node.ann", "pipeline", 2, "{}")])
    assert node.mailboxes.waiting("ann") == 0


def test_extreme_coordinates_work(node: World) -> None:
    """Whatever the space accepts, the binder can store and measure."""
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


def test_attribute_changes_bind_and_unbind(node: World) -> None:
    """A source that begins to match is bound, and unbound when it stops."""
    node.source("a", (0, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("q", "ann", NOISE)
    assert node.state("q") == "start"
    node.control.set_attributes("a", {"context": "noise"}).result(SECONDS)
    assert (node.state("q"), node.control.entities.attributes_json("a")) == ("active", '{"context":"noise"}')
    node.control.set_attributes("a", {}).result(SECONDS)
    assert (node.state("q"), node.control.entities.attributes_json("a")) == ("inactive", None)
    assert node.control_records() == [("initial", "a", "q"), ("unbinding", "a", "q")]


def test_adding_the_same_subscription_again_changes_nothing(node: World) -> None:
    """However it is formatted. Anything else under its id is refused."""
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
    submitted = [node.submit_subscription(f"q{number}", "ann", NOISE) for number in range(1000)]
    assert all(one.result(SECONDS) for one in submitted)
    assert node.control.subscription_counts()["agents"] == 1


def test_old_bindings_are_pruned(node: World) -> None:
    """After an hour here; live ones stay."""
    walk(node)
    (live,) = node.registry.live_bindings()
    later = live.at + 2 * 3_600_000_000
    node.wall = iter(range(later, later + 1000))
    node.restart()
    node.move("ann", 98)
    node.control.close()
    assert node.registry.bindings("q", 10) == [Binding("q", "b", live.at, None)]
    assert node.registry.live_bindings() == [Bound("q", "b", live.at)]


def test_a_closed_writer_refuses_requests(node: World) -> None:
    node.control.close()
    with pytest.raises(UnavailableError):
        node.move("ann", 1)
