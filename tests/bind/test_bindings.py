from __future__ import annotations

import pytest
from binding import query

from roamcast.bind.agents import Agent
from roamcast.bind.bindings import BindingManager, Bindings
from roamcast.bind.find import Finder
from roamcast.bind.registry import Entity, Registry
from roamcast.model import Position
from roamcast.space import PLANAR

LIGHT = "Select Where &context = light and &location in nearest"


class Desk:
    """A binding manager with sources to tell it of."""

    def __init__(self) -> None:
        self.registry = Registry(PLANAR)
        self.finder = Finder(PLANAR, self.registry)
        self.manager = BindingManager(self.registry, self.finder)

    def source(self, id: str, *, placed: bool = True, **attributes: str | float | bool) -> Entity:
        entity = Entity(id, "source", attributes, int(self.finder.add_sources([id], [0.0], [0.0])[0]))
        self.registry.add(entity, Position(id, 0.0, 0.0, 0) if placed else None)
        self.manager.add_sources([entity])
        return entity

    def allot(self, id: str, text: str) -> Agent:
        return self.manager.allot(id, query(text))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_the_table_is_read_from_either_side() -> None:
    """A binding is found by its subscription and by its source, until it is taken back."""
    table = Bindings()
    table.bind("p", "b")
    table.bind("p", "a")
    table.bind("q", "a")
    assert table.sources_of("p") == ("a", "b")
    assert set(table.subscriptions_of("a")) == {"p", "q"}
    table.unbind("p", "a")
    assert table.sources_of("p") == ("b",)
    assert set(table.subscriptions_of("a")) == {"q"}
    table.unbind("p", "b")
    assert table.sources_of("p") == ()


def test_wanted_is_what_a_binding_names() -> None:
    """A source is wanted from its first binding to its last."""
    table = Bindings()
    table.bind("p", "a")
    table.bind("q", "a")
    table.unbind("p", "a")
    assert set(table.wanted) == {"a"}
    table.unbind("q", "a")
    assert set(table.wanted) == set()


def test_equal_expressions_share_an_agent(desk: Desk) -> None:
    """Definition 6: whatever the spelling, one source expression has one agent."""
    first = desk.allot("p", LIGHT)
    assert desk.allot("q", "select where &location in nearest and &context = 'light'") is first
    assert desk.allot("r", "Select Where &context = noise and &location in nearest") is not first
    assert first.members == {"p", "q"}


def test_clauses_that_are_no_source_expression_do_not_matter(desk: Desk) -> None:
    """On, Every and Life-control do not part subscriptions that want the same sources."""
    other = f"{LIGHT} On @ > 5 Every 1 s Life-control #role = guard"
    assert desk.allot("p", LIGHT) is desk.allot("q", other)


def test_the_function_is_part_of_the_expression(desk: Desk) -> None:
    """nearof() and remoteof() of the same sources have an agent each."""
    near, far = (f"Select {name}() Where &location in rang:loc(5)" for name in ("nearof", "remoteof"))
    assert desk.allot("p", near) is not desk.allot("q", far)


def test_an_agent_goes_with_its_last_subscription(desk: Desk) -> None:
    """An agent that nobody needs is no more; the next one with its expression is new."""
    agent = desk.allot("p", LIGHT)
    desk.allot("q", LIGHT)
    desk.manager.release("p", agent)
    assert list(desk.manager.agents) == [agent]
    desk.manager.release("q", agent)
    assert list(desk.manager.agents) == []
    assert desk.allot("p", LIGHT) is not agent


def test_a_thousand_subscriptions_have_one_agent(desk: Desk) -> None:
    """However many subscriptions have an expression, one agent serves them."""
    for number in range(1000):
        desk.allot(f"p{number}", LIGHT)
    (agent,) = desk.manager.agents
    assert len(agent.members) == 1000


def test_a_new_agent_finds_the_sources_that_are_there(desk: Desk) -> None:
    """An agent knows who qualifies from the start, and of whom it is not known where."""
    desk.source("lamp", context="light")
    desk.source("lost", context="light", placed=False)
    desk.source("bell", context="noise")
    agent = desk.allot("p", LIGHT)
    assert agent.sources == {"lamp", "lost"}
    assert agent.unplaced == {"lost"}


@pytest.mark.parametrize("text", [LIGHT, "Select Where (&context = light or &context = x) and &location in nearest"])
def test_sources_that_come_change_and_go(desk: Desk, text: str) -> None:
    """Agents hear of every source that comes to qualify or ceases to, with anchors or without."""
    agent = desk.allot("p", text)
    lamp = desk.source("lamp", context="light")
    assert agent.sources == {"lamp"}
    before, lamp.attributes = lamp.attributes, {"context": "noise"}
    desk.manager.change_source(lamp, before)
    assert agent.sources == set()
    before, lamp.attributes = lamp.attributes, {"context": "light"}
    desk.manager.change_source(lamp, before)
    assert agent.sources == {"lamp"}
    desk.manager.remove_source(lamp)
    assert agent.sources == set()


def test_a_source_that_is_found_at_last(desk: Desk) -> None:
    """A source is no longer unplaced once its position is known."""
    agent = desk.allot("p", LIGHT)
    lamp = desk.source("lamp", context="light", placed=False)
    assert agent.unplaced == {"lamp"}
    desk.registry.move(["lamp"], [1.0], [1.0], [1])
    desk.manager.add_sources([lamp])
    assert agent.unplaced == set()
    assert agent.sources == {"lamp"}
