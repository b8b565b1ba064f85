from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from binding import query

from roamcast.bind.lcesm.agents import Agent, Group, choice_of
from roamcast.bind.lcesm.registry import STILL, Arrivals, Kind, Registry
from roamcast.bind.lcesm.requirements import Requirement
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.bind.nearest.finder import Finder, Found
from roamcast.bind.nearest.id_table import Names
from roamcast.bind.nearest.watch import Watch
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC, PLANAR, Space

ANY = "Select anyof() Where &location in rang:loc(100)"
TWO = "Select Where &location in nearest(2)"
ONE = "Select Where &location in nearest"

Change = tuple[str, tuple[str, ...], tuple[str, ...], bool]


class World:
    """Sources and one subscriber on a line. Changes are told with the ids of subscriptions."""

    def __init__(self, space: Space = PLANAR, **sources: float) -> None:
        watch = Watch(space)
        self.registry = Registry(space, watch, Names())
        self.finder = Finder(space, self.registry, watch)
        for id, x in sources.items():
            self.add("source", id, x)
        self.ann = self.add("subscriber", "ann", 0.0)
        self.rows: dict[str, Requirement] = {}

    def add(self, kind: Kind, id: str, x: float) -> int:
        new = Arrivals()
        new.add(id, {}, Position(id, x, 0.0, 0))
        return int(self.registry.add(kind, new)[0])

    def agent(self, text: str, sources: Iterable[str]) -> Agent:
        """For whom these sources qualify."""
        wanted = query(text)
        group = self.finder.add_group(choice_of(wanted).count)
        self.finder.change(STILL, (), [(self.registry.get(id).handle, group) for id in sources])
        return Agent(wanted, Group(None, group))

    def row(self, id: str, agent: Agent) -> Requirement:
        self.rows[id] = Requirement(id, self.ann, query(ONE), agent, SubscriptionState.START, 0)
        return self.rows[id]

    def subscribe(self, id: str, agent: Agent) -> list[Change]:
        return told(self.finder.subscribe(self.row(id, agent)))

    def unsubscribe(self, id: str) -> list[Change]:
        return told(self.finder.unsubscribe([self.rows[id]]))

    def move(self, id: str, x: float) -> list[Change]:
        return told(self.finder.change(self.registry.move([id], [x], [0.0], [1])))

    def sources(self, id: str) -> tuple[str, ...]:
        return next(self.finder.sources_of([self.rows[id]]))

    def subscriptions(self, source: str) -> set[str]:
        return set(self.finder.subscriptions_of(self.registry.get(source).handle))


def told(found: Iterable[Found]) -> list[Change]:
    return [(change.row.id, change.lost, change.found, change.has_source) for change in found]


def test_several_nearest() -> None:
    """nearest(k) has the k nearest sources, ties going to the lower id."""
    world = World(c=3.0, b=-3.0, a=5.0)
    assert world.subscribe("p", world.agent(TWO, "abc")) == [("p", (), ("b", "c"), True)]


def test_fewer_than_several() -> None:
    """nearest(k) has all sources when there are not more than k."""
    world = World(a=5.0)
    assert world.subscribe("p", world.agent(TWO, "a")) == [("p", (), ("a",), True)]


def test_only_what_changes_is_told() -> None:
    """When one of several sources is overtaken, the others are not spoken of."""
    world = World(a=1.0, b=2.0, c=3.0)
    world.subscribe("p", world.agent(TWO, "abc"))
    assert world.move("c", 1.5) == [("p", ("b",), ("c",), True)]
    assert world.move("a", 0.5) == []
    assert world.move("ann", 9.0) == [("p", ("a",), ("b",), True)]


def test_one_of_several_is_lost() -> None:
    """Who loses a source and has another left still has one."""
    world = World(a=1.0, b=2.0)
    agent = world.agent(TWO, "ab")
    world.subscribe("p", agent)
    handles = [world.registry.get(id).handle for id in "ab"]
    assert told(world.finder.change(STILL, [(handles[0], agent.group.handle)], ())) == [("p", ("a",), (), True)]
    assert told(world.finder.change(STILL, [(handles[1], agent.group.handle)], ())) == [("p", ("b",), (), False)]


def test_sources_that_do_not_qualify_do_not_matter() -> None:
    """The moves of sources of other groups change nothing."""
    world = World(a=5.0, b=9.0)
    world.subscribe("p", world.agent(TWO, "a"))
    assert world.move("b", 1.0) == []


def test_several_asleep() -> None:
    """Asleep a subscription has no sources, whoever moves."""
    world = World(a=1.0, b=2.0)
    world.subscribe("p", world.agent(TWO, "ab"))
    assert told(world.finder.sleep([world.rows["p"]])) == [("p", ("a", "b"), (), False)]
    assert world.move("a", 1.5) == []
    assert told(world.finder.wake([world.rows["p"]])) == [("p", (), ("a", "b"), True)]
    assert world.unsubscribe("p") == [("p", ("a", "b"), (), False)]


def test_bindings_are_read_from_either_side() -> None:
    """A binding is found by its subscription and by its source, until it is taken back."""
    world = World(a=1.0, b=2.0, c=3.0)
    world.subscribe("p", world.agent(TWO, "abc"))
    world.subscribe("q", world.agent(ONE, "abc"))
    assert (world.sources("p"), world.sources("q")) == (("a", "b"), ("a",))
    assert [world.subscriptions(source) for source in "abc"] == [{"p", "q"}, {"p"}, set()]
    world.unsubscribe("p")
    assert [world.subscriptions(source) for source in "abc"] == [{"q"}, set(), set()]
    world.unsubscribe("q")
    assert world.sources("q") == ()


def test_wanted_is_what_a_binding_names() -> None:
    """A source is wanted from its first binding to its last."""
    world = World(a=1.0, b=2.0)
    world.subscribe("p", world.agent(TWO, "ab"))
    world.subscribe("q", world.agent(ONE, "ab"))
    assert set(world.finder.wanted) == {"a", "b"}
    assert set(world.finder.demand()) == {("a", True), ("b", True)}
    world.unsubscribe("p")
    assert set(world.finder.wanted) == {"a"}
    assert world.finder.demand() == [("b", False)]
    world.unsubscribe("q")
    assert set(world.finder.wanted) == set()
    assert world.finder.demand() == [("a", False)]


def test_demand_for_a_moment() -> None:
    """A source that is wanted and then no more, or the other way round, is not spoken of."""
    world = World(a=1.0, b=2.0)
    agent = world.agent(ONE, "ab")
    world.subscribe("p", agent)
    world.unsubscribe("p")
    assert world.finder.demand() == []
    world.subscribe("q", agent)
    world.finder.demand()
    world.move("ann", 9.0)
    world.subscribe("r", world.agent(ONE, "a"))
    assert world.finder.demand() == [("b", True)]


def test_anyof_counts_bindings_of_several() -> None:
    """anyof() takes the source with most bindings, those of nearest(k) included, as long as they last."""
    world = World(a=50.0, b=60.0, c=3.0, d=4.0)
    world.subscribe("k", world.agent(TWO, "cd"))
    any_of = world.agent(ANY, "abd")
    assert world.subscribe("p", any_of) == [("p", (), ("d",), True)]
    world.unsubscribe("p")
    world.unsubscribe("k")
    assert world.subscribe("q", any_of) == [("q", (), ("a",), True)]


def test_anyof_counts_what_several_find_in_the_same_batch() -> None:
    """A batch of moves that gives nearest(k) other sources and anyof() none: anyof() counts the new ones."""
    world = World(a=4.0, m=1.0, n=2.0, o=3.0)
    world.subscribe("k", world.agent(TWO, "mno"))
    world.subscribe("p", world.agent(ANY, "amo"))
    assert (world.sources("k"), world.sources("p")) == (("m", "n"), ("m",))
    assert world.move("m", 300.0) == [("k", ("m",), ("o",), True), ("p", ("m",), ("o",), True)]


def test_anyof_keeps_what_it_had() -> None:
    """After a restart anyof() has the source that it had before, if that still qualifies."""
    world = World(a=1.0, b=2.0, c=200.0)
    any_of = world.agent(ANY, "abc")
    rows = [world.row(id, any_of) for id in "pqr"]
    world.finder.restore(rows, {rows[0]: ("b",), rows[1]: ("c",), rows[2]: ("nobody",)})
    assert [world.sources(id) for id in "pqr"] == [("b",), ("b",), ("b",)]


def test_anyof_is_told_last() -> None:
    """Choices come in the order in which they were made: those that count bindings after those that do not."""
    world = World(a=1.0, b=2.0)
    any_of, nearest = world.agent(ANY, ""), world.agent(ONE, "")
    world.subscribe("p", any_of)
    world.subscribe("q", nearest)
    source = world.registry.get("a").handle
    found = told(world.finder.change(STILL, (), [(source, any_of.group.handle), (source, nearest.group.handle)]))
    assert [change[0] for change in found] == ["q", "p"]


@pytest.mark.parametrize("space", [PLANAR, GEOGRAPHIC])
def test_several_are_those_of_a_full_sort(space: Space) -> None:
    """On random points nearest(k) has the first k by distance and id."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        xs = {f"s{number}": float(x) for number, x in enumerate(rng.integers(-5, 6, 12))}
        world = World(space, **xs)
        count = int(rng.integers(2, 14))
        (found,) = world.subscribe("p", world.agent(f"Select Where &location in nearest({count})", xs))
        order = sorted(xs, key=lambda id: (float(space.distance(0.0, 0.0, xs[id], 0.0)), id))
        assert found == ("p", (), tuple(sorted(order[:count])), True)


def test_an_empty_batch_of_moves() -> None:
    """Nothing happens when nobody moves."""
    assert World(a=1.0).finder.change(STILL) == []
