from __future__ import annotations

import pytest
from binding import query

from roamcast.bind.lcesm.agents import Agent
from roamcast.bind.lcesm.binding_manager import BindingManager
from roamcast.bind.lcesm.registry import STILL, Arrivals, Entity, Registry
from roamcast.bind.nearest.finder import Finder
from roamcast.bind.nearest.id_table import Names
from roamcast.bind.nearest.watch import Watch
from roamcast.model import Position
from roamcast.space import PLANAR

LIGHT = "Select Where &context = light and &location in nearest"


class Desk:
    """A binding manager with sources to tell it of."""

    def __init__(self) -> None:
        watch = Watch(PLANAR)
        self.registry = Registry(PLANAR, watch, Names())
        self.manager = BindingManager(self.registry, Finder(PLANAR, self.registry, watch))

    def source(self, id: str, *, placed: bool = True, **attributes: str | float | bool) -> Entity:
        new = Arrivals()
        new.add(id, attributes, Position(id, 0.0, 0.0, 0) if placed else None)
        entity = self.registry.at(int(self.registry.add("source", new)[0]))
        self.manager.change(STILL, (), [entity])
        return entity

    def change(self, source: Entity, **attributes: str | float | bool) -> Entity:
        changed = self.registry.change(source, attributes)
        self.manager.change(STILL, [source], [changed])
        return changed

    def allot(self, text: str) -> Agent:
        """For a new subscription."""
        agent = self.manager.allot(query(text))
        agent.members += 1
        return agent


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_equal_expressions_share_an_agent(desk: Desk) -> None:
    """Definition 6: whatever the spelling, one source expression has one agent."""
    first = desk.allot(LIGHT)
    assert desk.allot("select where &location in nearest and &context = 'light'") is first
    assert desk.allot("Select Where &context = noise and &location in nearest") is not first
    assert first.members == 2


def test_clauses_that_are_no_source_expression_do_not_matter(desk: Desk) -> None:
    """On, Every and Life-control do not part subscriptions that want the same sources."""
    other = f"{LIGHT} On @ > 5 Every 1 s Life-control #role = guard"
    assert desk.allot(LIGHT) is desk.allot(other)


def test_the_function_is_part_of_the_expression(desk: Desk) -> None:
    """nearof() and remoteof() of the same sources have an agent each."""
    near, far = (f"Select {name}() Where &location in rang:loc(5)" for name in ("nearof", "remoteof"))
    assert desk.allot(near) is not desk.allot(far)


def test_agents_that_choose_otherwise_share_their_sources(desk: Desk) -> None:
    """Whatever function and radius, agents with the same condition have one group; with nearest(k) one for each k."""
    near, far = (
        f"Select {name}() Where &location in rang:loc(5) and &context = light" for name in ("nearof", "remoteof")
    )
    groups = [desk.allot(text).group for text in (LIGHT, near, far)]
    assert groups[0] is groups[1] is groups[2]
    assert desk.allot(f"{LIGHT}(2)").group is not groups[0]
    assert desk.allot("Select Where &location in nearest").group is not groups[0]


def test_a_group_goes_with_its_last_agent(desk: Desk) -> None:
    """Sources are kept together as long as an agent needs them."""
    desk.source("lamp", context="light")
    nearest, near = desk.allot(LIGHT), desk.allot("Select nearof() Where &context = light and &location in rang:loc(5)")
    desk.manager.release(nearest)
    assert desk.allot(LIGHT).group is near.group
    desk.manager.release(near)
    desk.manager.release(desk.manager.allot(query(LIGHT)))
    assert desk.allot(LIGHT).group is not near.group
    assert desk.allot(LIGHT).group.sources == {"lamp"}


def test_an_agent_goes_with_its_last_subscription(desk: Desk) -> None:
    """An agent that nobody needs is no more; the next one with its expression is new."""
    agent = desk.allot(LIGHT)
    desk.allot(LIGHT)
    desk.manager.release(agent)
    assert desk.manager.allot(query(LIGHT)) is agent
    desk.manager.release(agent)
    assert desk.manager.allot(query(LIGHT)) is not agent


def test_a_thousand_subscriptions_have_one_agent(desk: Desk) -> None:
    """However many subscriptions have an expression, one agent serves them."""
    assert len({desk.allot(LIGHT) for _ in range(1000)}) == 1


def test_a_new_agent_finds_the_sources_that_are_there(desk: Desk) -> None:
    """An agent knows who qualifies from the start, and of whom it is not known where."""
    desk.source("lamp", context="light")
    desk.source("lost", context="light", placed=False)
    desk.source("bell", context="noise")
    agent = desk.allot(LIGHT)
    assert agent.group.sources == {"lamp", "lost"}
    assert agent.group.unplaced == {"lost"}


@pytest.mark.parametrize("text", [LIGHT, "Select Where (&context = light or &context = x) and &location in nearest"])
def test_sources_that_come_change_and_go(desk: Desk, text: str) -> None:
    """Agents hear of every source that comes to qualify or ceases to, with anchors or without."""
    agent = desk.allot(text)
    lamp = desk.source("lamp", context="light")
    assert agent.group.sources == {"lamp"}
    lamp = desk.change(lamp, context="noise")
    assert agent.group.sources == set()
    lamp = desk.change(lamp, context="light")
    assert agent.group.sources == {"lamp"}
    desk.manager.change(STILL, [lamp], ())
    assert agent.group.sources == set()


def test_a_source_that_is_found_at_last(desk: Desk) -> None:
    """A source is no longer unplaced once its position is known."""
    agent = desk.allot(LIGHT)
    lamp = desk.source("lamp", context="light", placed=False)
    assert agent.group.unplaced == {"lamp"}
    desk.registry.move(["lamp"], [1.0], [1.0], [1])
    desk.manager.change(STILL, (), [lamp])
    assert agent.group.unplaced == set()
    assert agent.group.sources == {"lamp"}
