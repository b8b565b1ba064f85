"""The bindings that a binding manager keeps: nearest(k), anyof(), and demand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from binding import query

from roamcast.bind.lcesm.binding_manager import Agent, BindingManager, SourceChange
from roamcast.bind.lcesm.entities import NO_MOVES, BinderEntity, EntityKind, EntityMoves, EntityTable, NewEntities
from roamcast.bind.lcesm.messages import SubscriptionState
from roamcast.bind.lcesm.requirements import Requirement
from roamcast.bind.nearest.kernels.id_table import IdTable
from roamcast.bind.nearest.sources import NearestSources
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC, PLANAR, Space

ANY = "Select anyof() Where &location in rang:loc(100)"
TWO = "Select Where &location in nearest(2)"
ONE = "Select Where &location in nearest"

Change = tuple[str, tuple[str, ...], tuple[str, ...], bool]
"""A subscription, the sources it lost and gained, and whether it has one."""


class Line:
    """Sources and one subscriber on a line."""

    def __init__(self, space: Space = PLANAR, **sources: float) -> None:
        self.nearest = NearestSources(space)
        self.entities = EntityTable(space, self.nearest, IdTable())
        self.manager = BindingManager(self.entities, self.nearest)
        for id, x in sources.items():
            self.add("source", id, x)
        self.ann = self.add("subscriber", "ann", 0.0)
        self.rows: dict[str, Requirement] = {}
        self.agents = 0

    def add(self, kind: EntityKind, id: str, x: float) -> int:
        new = NewEntities()
        new.add(id, {}, Position(id, x, 0.0, 0))
        return int(self.entities.add(kind, new)[0])

    def agent(self, text: str, sources: Iterable[str]) -> Agent:
        """An agent with a group of its own, of these sources."""
        self.agents += 1
        mark = f"agent{self.agents}"
        for id in sources:
            self.mark(id, **{mark: "yes"})
        return self.manager.allot(query(text.replace("Where", f"Where &{mark} = yes and")))

    def mark(self, *ids: str, **marks: str | None) -> list[Change]:
        """Set or remove attributes of sources, all at once."""
        old_sources = [self.entities.get(id) for id in ids]
        new_sources = []
        for source in old_sources:
            attributes = {**source.attributes, **marks}
            kept = {name: value for name, value in attributes.items() if value is not None}
            new_sources.append(self.entities.change(source, kept))
        return self.change(NO_MOVES, old_sources, new_sources)

    def change(
        self, moves: EntityMoves, old_sources: Iterable[BinderEntity] = (), new_sources: Iterable[BinderEntity] = ()
    ) -> list[Change]:
        """As the binder does."""
        leaving, joining = self.manager.regroup(old_sources, new_sources)
        changes = self.nearest.move(moves.handles, moves.x, moves.y, leaving=leaving, joining=joining)
        return summarise(self.manager.source_changes(changes))

    def row(self, id: str, agent: Agent) -> Requirement:
        self.rows[id] = Requirement(id, self.ann, query(ONE), agent, SubscriptionState.START, 0)
        return self.rows[id]

    def subscribe(self, id: str, agent: Agent) -> list[Change]:
        return summarise(self.manager.bind_new([self.row(id, agent)]))

    def unsubscribe(self, id: str) -> list[Change]:
        return summarise(self.manager.remove([self.rows[id]]))

    def move(self, id: str, x: float) -> list[Change]:
        return self.change(self.entities.move([id], [x], [0.0], [1]))

    def sources(self, id: str) -> tuple[str, ...]:
        return next(self.manager.sources_of([self.rows[id]]))

    def subscriptions(self, source: str) -> set[str]:
        return set(self.manager.subscriptions_of(self.entities.get(source).handle))


def summarise(changes: Iterable[SourceChange]) -> list[Change]:
    """By subscription, in the order of the first change of each."""
    by_id: dict[str, list[SourceChange]] = {}
    for change in changes:
        by_id.setdefault(change.requirement.id, []).append(change)
    return [
        (
            id,
            tuple(one.lost for one in own if one.lost is not None),
            tuple(one.gained for one in own if one.gained is not None),
            own[-1].has_source,
        )
        for id, own in by_id.items()
    ]


def test_nearest_k_binds_the_k_nearest_sources() -> None:
    """Ties go to the lower id."""
    line = Line(c=3.0, b=-3.0, a=5.0)
    assert line.subscribe("p", line.agent(TWO, "abc")) == [("p", (), ("b", "c"), True)]


def test_nearest_k_binds_all_sources_if_there_are_fewer() -> None:
    """There need not be k sources."""
    line = Line(a=5.0)
    assert line.subscribe("p", line.agent(TWO, "a")) == [("p", (), ("a",), True)]


def test_nearest_k_reports_only_changed_sources() -> None:
    """When one of several sources is overtaken, the others are not reported."""
    line = Line(a=1.0, b=2.0, c=3.0)
    line.subscribe("p", line.agent(TWO, "abc"))
    assert line.move("c", 1.5) == [("p", ("b",), ("c",), True)]
    assert line.move("a", 0.5) == []
    assert line.move("ann", 9.0) == [("p", ("a",), ("b",), True)]


def test_nearest_k_has_a_source_until_it_loses_the_last() -> None:
    """A subscription that loses one source and has another left still has one."""
    line = Line(a=1.0, b=2.0)
    line.subscribe("p", line.agent(TWO, "ab"))
    assert line.mark("a", agent1=None) == [("p", ("a",), (), True)]
    assert line.mark("b", agent1=None) == [("p", ("b",), (), False)]


def test_sources_of_other_groups_do_not_matter() -> None:
    """Moves of sources that do not qualify change nothing."""
    line = Line(a=5.0, b=9.0)
    line.subscribe("p", line.agent(TWO, "a"))
    assert line.move("b", 1.0) == []


def test_a_suspended_nearest_k_has_no_sources() -> None:
    """Whatever moves."""
    line = Line(a=1.0, b=2.0)
    line.subscribe("p", line.agent(TWO, "ab"))
    assert summarise(line.manager.suspend([line.rows["p"]])) == [("p", ("a", "b"), (), False)]
    assert line.move("a", 1.5) == []
    assert summarise(line.manager.resume([line.rows["p"]])) == [("p", (), ("a", "b"), True)]
    assert line.unsubscribe("p") == [("p", ("a", "b"), (), False)]


def test_bindings_are_found_by_subscription_and_by_source() -> None:
    """Until they end."""
    line = Line(a=1.0, b=2.0, c=3.0)
    line.subscribe("p", line.agent(TWO, "abc"))
    line.subscribe("q", line.agent(ONE, "abc"))
    assert (line.sources("p"), line.sources("q")) == (("a", "b"), ("a",))
    assert [line.subscriptions(source) for source in "abc"] == [{"p", "q"}, {"p"}, set()]
    line.unsubscribe("p")
    assert [line.subscriptions(source) for source in "abc"] == [{"q"}, set(), set()]
    line.unsubscribe("q")
    assert line.sources("q") == ()


def test_a_source_is_demanded_from_its_first_to_its_last_binding() -> None:
    """Changes of demand are reported once."""
    line = Line(a=1.0, b=2.0)
    line.subscribe("p", line.agent(TWO, "ab"))
    line.subscribe("q", line.agent(ONE, "ab"))
    assert set(line.manager.bound_sources) == {"a", "b"}
    assert set(line.manager.demand_changes()) == {("a", True), ("b", True)}
    line.unsubscribe("p")
    assert set(line.manager.bound_sources) == {"a"}
    assert line.manager.demand_changes() == [("b", False)]
    line.unsubscribe("q")
    assert set(line.manager.bound_sources) == set()
    assert line.manager.demand_changes() == [("a", False)]


def test_demand_that_changes_back_is_not_reported() -> None:
    """A source that becomes demanded and then idle, or the other way round."""
    line = Line(a=1.0, b=2.0)
    agent = line.agent(ONE, "ab")
    line.subscribe("p", agent)
    line.unsubscribe("p")
    assert line.manager.demand_changes() == []
    line.subscribe("q", agent)
    line.manager.demand_changes()
    line.move("ann", 9.0)
    line.subscribe("r", line.agent(ONE, "a"))
    assert line.manager.demand_changes() == [("b", True)]


def test_anyof_counts_bindings_of_nearest_k() -> None:
    """anyof() chooses the source with the most bindings, while they exist."""
    line = Line(a=50.0, b=60.0, c=3.0, d=4.0)
    line.subscribe("k", line.agent(TWO, "cd"))
    any_of = line.agent(ANY, "abd")
    assert line.subscribe("p", any_of) == [("p", (), ("d",), True)]
    line.unsubscribe("p")
    line.unsubscribe("k")
    assert line.subscribe("q", any_of) == [("q", (), ("a",), True)]


def test_anyof_counts_new_bindings_of_nearest_k_in_the_same_batch() -> None:
    """When one move gives nearest(k) another source and takes that of anyof() away."""
    line = Line(a=4.0, m=1.0, n=2.0, o=3.0)
    line.subscribe("k", line.agent(TWO, "mno"))
    line.subscribe("p", line.agent(ANY, "amo"))
    assert (line.sources("k"), line.sources("p")) == (("m", "n"), ("m",))
    assert line.move("m", 300.0) == [("k", ("m",), ("o",), True), ("p", ("m",), ("o",), True)]


def test_anyof_keeps_its_previous_source_after_a_restart() -> None:
    """If that still qualifies."""
    line = Line(a=1.0, b=2.0, c=200.0)
    any_of = line.agent(ANY, "abc")
    rows = [line.row(id, any_of) for id in "pqr"]
    line.manager.bind_new(rows, {rows[0]: ("b",), rows[1]: ("c",), rows[2]: ("nobody",)})
    assert [line.sources(id) for id in "pqr"] == [("b",), ("b",), ("b",)]


def test_changes_of_anyof_are_reported_last() -> None:
    """In the order of choice: anyof() counts the bindings of all others."""
    line = Line(a=1.0, b=2.0)
    line.subscribe("p", line.agent(ANY, ""))
    line.subscribe("q", line.agent(ONE, ""))
    changes = line.mark("a", agent1="yes", agent2="yes")
    assert [id for id, *_ in changes] == ["q", "p"]


@pytest.mark.parametrize("space", [PLANAR, GEOGRAPHIC])
def test_nearest_k_equals_a_full_sort(space: Space) -> None:
    """On random points: the first k by distance and id."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        xs = {f"s{number}": float(x) for number, x in enumerate(rng.integers(-5, 6, 12))}
        line = Line(space, **xs)
        count = int(rng.integers(2, 14))
        (change,) = line.subscribe("p", line.agent(f"Select Where &location in nearest({count})", xs))
        order = sorted(xs, key=lambda id: (float(space.distance(0.0, 0.0, xs[id], 0.0)), id))
        assert change == ("p", (), tuple(sorted(order[:count])), True)


def test_an_empty_batch_of_moves_changes_nothing() -> None:
    """No moves, no changes."""
    assert Line(a=1.0).change(NO_MOVES) == []
