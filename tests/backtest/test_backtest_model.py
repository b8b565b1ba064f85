"""Backtests equal the letters of a live subscription, over random worlds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from backtests import LiveWorld, letters_of, live_world
from hypothesis import event, given
from hypothesis import strategies as st

from roamcast.backtest.request import Subscriber

Step = Callable[[LiveWorld], object]
Round = Sequence[Step]

TEXTS = (
    "Select Where &location in nearest",
    "Select Where &location in nearest(2) and &context = level On @ > 3",
    "Select nearof() Where &location in rang:loc(5) and &context = level Every 5 s",
    "Select remoteof() Where &location in rang:loc(8)",
    "Select Where &location in nearest Life-control #location in stage",
    "Select Where &location in nearest Every 4 s Life-control #role = guard",
    "Select anyof() Where &location in rang:loc(9) and &context = level",
    'Select all() Where &terms has ("fire")',
    "Select all() Where &location in box(0, 0, 8, 8) and not &context = level Every 3 s",
    "Select all() Where &location in circle(5, 5, 4) On @level > 2",
    'Select all() Where &location in within(stage) and &terms has ("fire") Life-control #role = guard',
    "Select all() Where &location in rang:loc(5)",
    "Select all() Where &location in rang:loc(4) On @ > 2 Life-control #location in stage or #role = guard",
)
SOURCES, SUBSCRIBERS = ("a", "b", "c"), ("ann", "bob")
points = st.tuples(st.sampled_from([2, 4, 1, 6, 8, 10, 13, -2]), st.sampled_from([2, 4, 5, 7, 9, 12, -1]))
flags = st.sampled_from([True, True, True, False])
terms = st.sampled_from([("fire",), ("fire", "smoke"), ()])
levels = st.sampled_from([5.0, 4.0, 3.0, 2.0, 9.0, None])


def register(id: str, kind: Any, at: tuple[float, float] | None, flag: bool) -> Step:
    name, value = ("context", "level") if kind == "source" else ("role", "guard")

    def step(world: LiveWorld) -> None:
        if world.node.control.entities.find(id) is None:
            world.node.register(id, kind, at, **({name: value} if flag else {}))

    return step


def move(positions: dict[str, tuple[float, float]]) -> Step:
    def step(world: LiveWorld) -> None:
        node = world.node
        node.move(**{id: at for id, at in positions.items() if node.control.entities.find(id) is not None})

    return step


def change(id: str) -> Step:
    """Take the attribute away, or give it back."""
    name, value = ("context", "level") if id in SOURCES else ("role", "guard")

    def step(world: LiveWorld) -> None:
        entity = world.node.control.entities.find(id)
        if entity is not None:
            world.node.change(id, **({} if entity.attributes else {name: value}))

    return step


def publish(
    source: str,
    at: tuple[float, float],
    terms: Sequence[str],
    level: float | None,
    ago: int,
    again: bool,
    elsewhere: bool = False,
) -> Step:
    """`elsewhere`: at another node than the source's, if there is one."""

    def step(world: LiveWorld) -> None:
        entity = world.node.control.entities.find(source)
        if entity is not None:
            via = list(world.nodes)[-elsewhere]
            world.publish(source, at, terms, level, ago=ago, again=again, via=via, attributes=dict(entity.attributes))

    return step


batches = st.just(LiveWorld.batch)
registrations = st.one_of(
    st.builds(register, st.sampled_from(SOURCES), st.just("source"), st.none() | points, flags),
    st.builds(register, st.just("bob"), st.just("subscriber"), points, flags),
)
moves = st.builds(move, st.dictionaries(st.sampled_from(SOURCES + SUBSCRIBERS), points, min_size=1))
changes = st.builds(change, st.sampled_from(["ann", "a", "b", "c", "ann", "bob"]))
events = st.builds(
    publish,
    st.sampled_from(SOURCES),
    points,
    terms,
    levels,
    st.sampled_from([0, 0, 0, 0, 3, 9]),
    st.sampled_from([False] * 4 + [True]),
)
events_elsewhere = st.builds(
    publish, st.sampled_from("aabbc"), points, terms, levels, st.sampled_from([0, 3]), st.just(False), flags
)
rounds = st.tuples(events, st.one_of(moves, moves, changes, changes, registrations, batches), events, events)
rounds_elsewhere = st.tuples(events_elsewhere, st.one_of(moves, changes, batches), events, events_elsewhere)
few, many = st.lists(rounds, max_size=3), st.lists(rounds, min_size=3, max_size=10)


def run(world: LiveWorld, rounds: Sequence[Sequence[Step]]) -> None:
    for step in chain.from_iterable(rounds):
        step(world)
        world.now()


@given(st.sampled_from(TEXTS), points, flags, flags, few, many, few)
def test_a_backtest_equals_the_live_stream(
    text: str,
    at: tuple[int, int],
    flag: bool,
    compact: bool,
    before: list[Round],
    during: list[Round],
    after: list[Round],
) -> None:
    """Over the same events, with moves and re-binding."""
    with tempfile.TemporaryDirectory() as folder, live_world(Path(folder)) as world:
        node = world.node
        for id, x in (("a", 2), ("b", 6)):
            node.register(id, "source", (x, 2), context="level")
        node.register("ann", "subscriber", at, **({"role": "guard"} if flag else {}))
        run(world, before)
        begin = world.now()
        accepted = node.subscribe("q", "ann", text)
        world.now()
        run(world, during)
        end = world.now()
        world.batch()  # a removal in the same batch would drop late events of bindings that have ended before
        node.control.unsubscribe("q", "ann").result(10)
        run(world, after)
        world.batch()
        if compact:
            world.compact()
        result = world.backtest(text, begin, end, Subscriber("ann"), accepted)
        event(f"{min(len(world.letters), 3)} letters")
        assert "anyof" in text or letters_of(result) == world.letters
        assert bool(result.approximate) == ("anyof" in text)


@given(
    st.sampled_from([text for text in TEXTS if "all()" in text and "Life-control" not in text]),
    points,
    few,
    st.lists(rounds_elsewhere, min_size=3, max_size=9),
)
def test_events_of_several_nodes_are_in_the_order_of_the_batches(
    text: str, at: tuple[int, int], before: list[Round], during: list[Round]
) -> None:
    """Equal to the stream that ran, without life-control; but approximate, as batches could have been cut elsewhere."""
    with tempfile.TemporaryDirectory() as folder, live_world(Path(folder), ["north", "south"]) as world:
        world.node.register("a", "source", (2, 2), context="level")
        world.node.register("ann", "subscriber", at, role="guard")
        run(world, before)
        world.batch()
        begin = world.now()
        accepted = world.node.subscribe("q", "ann", text)
        world.now()
        run(world, during)
        end = world.now()
        world.batch()
        world.node.control.unsubscribe("q", "ann").result(10)
        world.batch()
        result = world.backtest(text, begin, end, Subscriber("ann", node="north"), accepted)
        assert letters_of(result) == world.letters
        event(f"{min(len(world.letters), 3)} letters, {'approximate' if result.approximate else 'exact'}")
