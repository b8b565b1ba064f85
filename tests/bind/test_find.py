from __future__ import annotations

import numpy as np
import pytest

from roamcast.bind.agents import Choice
from roamcast.bind.find import Finder, Found, Wish
from roamcast.bind.kernels.layout import Rule
from roamcast.bind.registry import Entity, Moves, Registry
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC, PLANAR, Space

ANY = Choice(Rule.ANYOF, 100.0)
TWO = Choice(Rule.NEAREST, count=2)


class World:
    """Sources and one subscriber on a line."""

    def __init__(self, space: Space = PLANAR, **sources: float) -> None:
        self.registry = Registry(space)
        self.finder = Finder(space, self.registry)
        for id, x in sources.items():
            handle = int(self.finder.add_sources([id], [x], [0.0])[0])
            self.registry.add(Entity(id, "source", {}, handle), Position(id, x, 0.0, 0))
        self.ann = int(self.finder.add_subscribers([0.0], [0.0])[0])
        self.registry.add(Entity("ann", "subscriber", {}, self.ann), Position("ann", 0.0, 0.0, 0))

    def group(self, choice: Choice, sources: str) -> int:
        group = self.finder.add_group(choice)
        self.finder.join((self.registry.get(id).handle, group) for id in sources)
        return group

    def subscribe(self, id: str, group: int, kept: str | None = None) -> list[Found]:
        return self.finder.subscribe([Wish(id, self.ann, group, True, kept)])

    def move(self, id: str, x: float) -> list[Found]:
        return self.finder.move(self.registry.move([id], [x], [0.0], [1]))


def test_several_nearest() -> None:
    """nearest(k) has the k nearest sources, ties going to the lower id."""
    world = World(c=3.0, b=-3.0, a=5.0)
    assert world.subscribe("p", world.group(TWO, "abc")) == [Found("p", (), ("b", "c"))]


def test_fewer_than_several() -> None:
    """nearest(k) has all sources when there are not more than k."""
    world = World(a=5.0)
    assert world.subscribe("p", world.group(TWO, "a")) == [Found("p", (), ("a",))]


def test_only_what_changes_is_told() -> None:
    """When one of several sources is overtaken, the others are not spoken of."""
    world = World(a=1.0, b=2.0, c=3.0)
    world.subscribe("p", world.group(TWO, "abc"))
    assert world.move("c", 1.5) == [Found("p", ("b",), ("c",))]
    assert world.move("a", 0.5) == []
    assert world.move("ann", 9.0) == [Found("p", ("a",), ("b",))]


def test_sources_that_do_not_qualify_do_not_matter() -> None:
    """The moves of sources of other groups change nothing."""
    world = World(a=5.0, b=9.0)
    world.subscribe("p", world.group(TWO, "a"))
    assert world.move("b", 1.0) == []


def test_several_asleep() -> None:
    """Asleep a subscription has no sources, whoever moves."""
    world = World(a=1.0, b=2.0)
    world.subscribe("p", world.group(TWO, "ab"))
    assert world.finder.sleep(["p"]) == [Found("p", ("a", "b"), ())]
    assert world.move("a", 1.5) == []
    assert world.finder.wake(["p"]) == [Found("p", (), ("a", "b"))]
    assert world.finder.unsubscribe(["p"]) == [Found("p", ("a", "b"), ())]


def test_anyof_counts_bindings_of_several() -> None:
    """anyof() takes the source with most bindings, those of nearest(k) included, as long as they last."""
    world = World(a=50.0, b=60.0, c=3.0, d=4.0)
    world.subscribe("k", world.group(TWO, "cd"))
    any_of = world.group(ANY, "abd")
    assert world.subscribe("p", any_of) == [Found("p", (), ("d",))]
    world.finder.unsubscribe(["p"])
    world.finder.unsubscribe(["k"])
    assert world.subscribe("q", any_of) == [Found("q", (), ("a",))]


def test_anyof_keeps_what_it_had() -> None:
    """After a restart anyof() has the source that it had before, if that still qualifies."""
    world = World(a=1.0, b=2.0, c=200.0)
    any_of = world.group(ANY, "abc")
    assert world.subscribe("p", any_of, kept="b") == [Found("p", (), ("b",))]
    world.finder.unsubscribe(["p"])
    assert world.subscribe("q", any_of, kept="c") == [Found("q", (), ("a",))]


def test_anyof_is_told_last() -> None:
    """Choices come in the order in which they were made: those that count bindings after those that do not."""
    world = World(a=1.0, b=2.0)
    any_of, nearest = world.group(ANY, "ab"), world.group(Choice(Rule.NEAREST), "ab")
    found = world.finder.subscribe([Wish("p", world.ann, any_of, True), Wish("q", world.ann, nearest, True)])
    assert [row.subscription for row in found] == ["q", "p"]


@pytest.mark.parametrize("space", [PLANAR, GEOGRAPHIC])
def test_several_are_those_of_a_full_sort(space: Space) -> None:
    """On random points nearest(k) has the first k by distance and id."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        xs = {f"s{number}": float(x) for number, x in enumerate(rng.integers(-5, 6, 12))}
        world = World(space, **xs)
        count = int(rng.integers(2, 14))
        group = world.finder.add_group(Choice(Rule.NEAREST, count=count))
        world.finder.join((world.registry.get(id).handle, group) for id in xs)
        (found,) = world.subscribe("p", group)
        order = sorted(xs, key=lambda id: (float(space.distance(0.0, 0.0, xs[id], 0.0)), id))
        assert found == Found("p", (), tuple(sorted(order[:count])))


def test_an_empty_batch_of_moves() -> None:
    """Nothing happens when nobody moves."""
    world = World(a=1.0)
    nobody = np.empty(0, np.int32)
    empty = np.empty(0, np.float64)
    assert world.finder.move(Moves(nobody, empty, empty, np.empty(0, np.bool_))) == []
