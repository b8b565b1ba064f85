"""What backtests say: the letters of the stream, whether they are exact, and what is wrong with a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backtests import STEP, LiveNode, LiveWorld, letters_of, live_world

from roamcast.archive.reader import Coverage, CoverageError
from roamcast.backtest.exactness import _whole_since
from roamcast.backtest.request import NOBODY, Request, Subscriber
from roamcast.errors import InputError, NotFoundError
from roamcast.lacl import LaclError
from roamcast.model import Position

NEAREST = "Select Where &location in nearest"
FIRE = 'Select all() Where &terms has ("fire")'


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveWorld]:
    """Two sources, 10 m apart, and ann beside the first."""
    with live_world(tmp_path) as world:
        node = world.node
        for id, x in (("a", 0), ("b", 10)):
            node.register(id, "source", (x, 0), context="level")
        node.register("ann", "subscriber", (1, 0), role="guard")
        yield world


def compare(world: LiveWorld, text: str, steps: Callable[[LiveNode], object]) -> list[tuple[str, int]]:
    """Subscribe while these steps happen. A backtest has the same letters: their sources and numbers of events."""
    begin = world.now()
    accepted = world.node.subscribe("q", "ann", text)
    world.now()
    steps(world.node)
    end = world.now()
    world.batch()
    world.node.control.unsubscribe("q", "ann").result(10)
    world.batch()
    result = world.backtest(text, begin, end, Subscriber("ann"), accepted)
    assert letters_of(result) == world.letters
    assert result.approximate == ()
    return [(letter["event"]["source"], letter["event"]["seq"]) for letter in world.letters]


def publish(world: LiveWorld, *sources: str, **options: Any) -> None:
    for source in sources:
        world.publish(source, level=5.0, **options)


def test_bindings_follow_the_tracks(world: LiveWorld) -> None:
    """Of the subscriber and of the sources. A late event meets the binding of its time."""

    def steps(node: LiveNode) -> None:
        publish(world, "a", "b")
        node.move(ann=(9, 0))
        publish(world, "a", "b")
        node.move(b=(50, 0), a=(60, 0))
        publish(world, "a", "b")
        publish(world, "a", ago=20)

    assert compare(world, NEAREST, steps) == [("a", 1), ("b", 2), ("b", 3), ("a", 4)]


def test_a_first_binding_brings_the_last_known_reading(world: LiveWorld) -> None:
    """From before the time of the backtest. A late one that came after the subscription does not count."""
    publish(world, "b", "a", "a")
    assert compare(world, NEAREST, lambda _: publish(world, "a", ago=30)) == [("a", 2)]


def test_the_last_known_reading_may_be_of_an_earlier_day(world: LiveWorld) -> None:
    """If the source has sent nothing but late events since."""
    publish(world, "a")
    world.seqs["a"] = 2
    publish(world, "a")
    for _ in range(7_000):  # until after midnight
        next(world.wall)
    world.seqs["a"] = 1
    publish(world, "a", ago=7_000)
    world.batch()
    world.compact()
    assert compare(world, NEAREST, lambda _: None) == [("a", 3)]


def test_life_control_follows_attributes(world: LiveWorld) -> None:
    def steps(node: LiveNode) -> None:
        publish(world, "a")
        node.change("ann")
        publish(world, "a")
        node.change("ann", role="guard")
        publish(world, "a")

    assert compare(world, f"{NEAREST} Life-control #role = guard", steps) == [("a", 1), ("a", 3)]


def test_bindings_follow_the_attributes_of_sources(world: LiveWorld) -> None:
    def steps(node: LiveNode) -> None:
        node.change("a")
        publish(world, "a", "b")
        node.register("c", "source", (2, 0), context="level")
        publish(world, "b", "c")

    text = "Select Where &location in nearest and &context = level"
    assert compare(world, text, steps) == [("b", 1), ("c", 1)]


def test_a_moving_region_follows_its_subscriber(world: LiveWorld) -> None:
    def steps(node: LiveNode) -> None:
        publish(world, "a", at=(4, 0))
        node.move(ann=(20, 0))
        publish(world, "a", at=(4, 0))
        publish(world, "a", at=(17, 0))

    assert compare(world, "Select all() Where &location in rang:loc(5)", steps) == [("a", 1), ("a", 3)]


def test_copies_count_once(world: LiveWorld) -> None:
    """Also if the first copy came before the backtest."""
    publish(world, "a", at=(4, 0))
    assert (
        compare(world, "Select all() Where &location in box(0, 0, 9, 9)", lambda _: publish(world, "a", again=True))
        == []
    )


def test_a_made_up_subscriber_gets_what_a_registered_one_gets(world: LiveWorld) -> None:
    """With the same track."""
    begin = world.now()
    accepted = world.node.subscribe("q", "ann", NEAREST)
    publish(world, "a", "b")
    moved = world.now()
    world.node.move(ann=(9, 0))
    publish(world, "a", "b")
    world.batch()
    track = (Position(NOBODY, 1, 0, 0), Position(NOBODY, 9, 0, moved))
    result = world.backtest(NEAREST, begin, world.now(), Subscriber(track=track), accepted)
    found = [(letter["event"]["source"], letter["event"]["seq"]) for letter in letters_of(result)]
    assert found == [(letter["event"]["source"], letter["event"]["seq"]) for letter in world.letters]
    assert found == [("a", 1), ("b", 2)]


def test_a_subscriber_that_comes_later_subscribes_then(world: LiveWorld) -> None:
    """When it is registered."""
    begin = world.now()
    world.publish("a", terms=["fire"])
    publish(world, "a")
    world.node.register("eve", "subscriber", (0, 0))
    publish(world, "a", "b")
    world.batch()
    result = world.backtest(f"{NEAREST} On @level > 4", begin, world.now(), Subscriber("eve"))
    assert [letter["event"]["seq"] for letter in letters_of(result)] == [2, 3]
    assert letters_of(result)[0]["why"].startswith("the last event of a when it was bound at")


def test_nodes_of_a_folder_keep_the_order_of_batches(tmp_path: Path) -> None:
    """As in the stream that ran. Since another one may have cut batches elsewhere, it is approximate."""
    with live_world(tmp_path, ["north", "south"]) as world:
        world.nodes["north"].register("ann", "subscriber", (0, 0))
        world.batch()
        begin = world.now()
        accepted = world.nodes["north"].subscribe("q", "ann", FIRE)
        for source in ("n@north", "s@south", "s@south", "n@north"):
            world.publish(source, terms=["fire"])
            world.publish(source, terms=["fire"], via="south")
            world.batch()
        result = world.backtest(FIRE, begin, world.now(), Subscriber("ann", node="north"), accepted)
        assert letters_of(result) == world.letters
        assert len(world.letters) == 8
        assert result.approximate == ("events of south have no fixed order among those of north",)


def approximate(world: LiveWorld, text: str, begin: int) -> str:
    world.batch()
    return " ".join(world.backtest(text, begin, world.now(), Subscriber("ann")).approximate)


def test_anyof_is_approximate(world: LiveWorld) -> None:
    begin = world.now()
    publish(world, "a")
    assert "anyof() is free" in approximate(world, "Select anyof() Where &location in rang:loc(30)", begin)


def test_very_late_events_are_approximate(world: LiveWorld) -> None:
    """The stream keeps ended bindings for an hour."""
    begin = world.now()
    world.node.subscribe("q", "ann", NEAREST)
    publish(world, "a")
    world.node.move(ann=(9, 0))
    for _ in range(3_700):
        next(world.wall)
    world.publish("a", ago=3_706)
    assert "more than an hour after" in approximate(world, NEAREST, begin)


@pytest.mark.parametrize("pause", [0, 3_700])
def test_the_end_of_a_batch_decides_which_bindings_are_kept(world: LiveWorld, pause: int) -> None:
    """An event that is a little late may be dropped, if its batch ends much later."""
    begin = world.now()
    world.node.subscribe("q", "ann", NEAREST)
    publish(world, "a")
    world.node.move(ann=(9, 0))
    world.publish("a", ago=6)
    for _ in range(pause):
        next(world.wall)
    publish(world, "b")
    assert ("more than an hour after" in approximate(world, NEAREST, begin)) == bool(pause)


def test_a_last_reading_may_have_been_erased_before(world: LiveWorld) -> None:
    """With others of its node. If there is one from after that, it is the last."""
    world.node.register("c", "source", (70, 0))
    world.node.control.remove("c").result(10)
    begin = world.now()
    publish(world, "b")
    assert "whether a had published before is not known" in approximate(world, NEAREST, begin)
    publish(world, "a")
    begin = world.now()
    publish(world, "b")
    assert approximate(world, NEAREST, begin) == ""


def test_a_last_reading_may_be_in_a_gap() -> None:
    """The archive counts from the last gap before a time on, and from its beginning, if older records were deleted."""
    ranges = [Coverage(1, 5, 0, 10), Coverage(9, 12, 20, 30)]
    assert [_whole_since({"local": ranges}, time) for time in (5, 15, 25)] == [None, None, 20]
    assert _whole_since({"local": ranges[:1], "other": [Coverage(2, 5, 7, 10)]}, 9) == 7


def test_life_control_beside_another_node_is_approximate(tmp_path: Path) -> None:
    """Even if no event of it is found."""
    with live_world(tmp_path, ["north", "south"]) as world:
        world.nodes["north"].register("ann", "subscriber", (0, 0))
        world.nodes["south"].register("bob", "subscriber", (0, 0))
        world.batch()
        begin = world.now()
        text = f"{FIRE} Life-control #role = guard"
        world.publish("n@north", terms=["fire"])
        world.batch()
        result = world.backtest(text, begin, world.now(), Subscriber("ann", node="north"))
        assert "stops and starts at north" in " ".join(result.approximate)


def test_what_was_erased_makes_it_approximate(world: LiveWorld) -> None:
    begin = world.now()
    publish(world, "a", "b")
    world.batch()
    world.node.control.remove("a").result(10)
    assert "entities of local were erased" in approximate(world, NEAREST, begin)


def refused(world: LiveWorld, error: type[Exception], text: str = FIRE, **changes: Any) -> str:
    begin = world.now()
    publish(world, "a")
    world.batch()
    values = {"begin": begin, "end": world.now(), **changes}
    with pytest.raises(error) as raised:
        world.run(Request(text, **values))
    return str(raised.value)


def test_bad_requests_are_refused(world: LiveWorld) -> None:
    """With what to do."""
    message = refused(world, NotFoundError, subscriber=Subscriber("an"))
    assert "no subscriber 'an'" in message
    assert "did you mean 'ann'?" in message
    assert "give a subscriber or a position" in refused(world, InputError, NEAREST)
    assert "no node 'south'" in refused(world, NotFoundError, subscriber=Subscriber(node="south"))
    assert "did you mean" in refused(world, LaclError, "Select all() Were &terms has fire")
    assert "must be before the end" in refused(world, InputError, end=0)
    message = refused(world, CoverageError, begin=world.now() + 99 * STEP, end=world.now() + 999 * STEP)
    assert "the archive ends at" in message
    assert "the archive has local from 2023-11-14T" in message
