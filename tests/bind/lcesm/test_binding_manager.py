from __future__ import annotations

import pytest
from binding import query

from roamcast.bind.lcesm.binding_manager import Agent, BindingManager
from roamcast.bind.lcesm.entities import BinderEntity, EntityTable, NewEntities
from roamcast.bind.nearest.kernels.id_table import IdTable
from roamcast.bind.nearest.sources import NearestSources
from roamcast.model import Position
from roamcast.space import PLANAR

LIGHT = "Select Where &context = light and &location in nearest"


class Setup:
    """A binding manager with an entity table."""

    def __init__(self) -> None:
        nearest = NearestSources(PLANAR)
        self.entities = EntityTable(PLANAR, nearest, IdTable())
        self.manager = BindingManager(self.entities, nearest)

    def source(self, id: str, *, placed: bool = True, **attributes: str | float | bool) -> BinderEntity:
        new = NewEntities()
        new.add(id, attributes, Position(id, 0.0, 0.0, 0) if placed else None)
        entity = self.entities.at(int(self.entities.add("source", new)[0]))
        self.manager.regroup((), [entity])
        return entity

    def change(self, source: BinderEntity, **attributes: str | float | bool) -> BinderEntity:
        changed = self.entities.change(source, attributes)
        self.manager.regroup([source], [changed])
        return changed

    def allot(self, text: str) -> Agent:
        """The agent for a new subscription."""
        agent = self.manager.allot(query(text))
        agent.subscriptions += 1
        return agent


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_equal_expressions_share_an_agent(setup: Setup) -> None:
    """Definition 6, whatever the spelling."""
    first = setup.allot(LIGHT)
    assert setup.allot("select where &location in nearest and &context = 'light'") is first
    assert setup.allot("Select Where &context = noise and &location in nearest") is not first
    assert first.subscriptions == 2


def test_other_clauses_do_not_matter_for_the_agent(setup: Setup) -> None:
    """On, Every and Life-control are not part of the source expression."""
    other = f"{LIGHT} On @ > 5 Every 1 s Life-control #role = guard"
    assert setup.allot(LIGHT) is setup.allot(other)


def test_the_function_is_part_of_the_expression(setup: Setup) -> None:
    """nearof() and remoteof() have different agents."""
    near, far = (f"Select {name}() Where &location in rang:loc(5)" for name in ("nearof", "remoteof"))
    assert setup.allot(near) is not setup.allot(far)


def test_agents_with_the_same_condition_share_a_group(setup: Setup) -> None:
    """Whatever function and radius; nearest(k) has one for each k."""
    near, far = (
        f"Select {name}() Where &location in rang:loc(5) and &context = light" for name in ("nearof", "remoteof")
    )
    groups = [setup.allot(text).group for text in (LIGHT, near, far)]
    assert groups[0] is groups[1] is groups[2]
    assert setup.allot(f"{LIGHT}(2)").group is not groups[0]
    assert setup.allot("Select Where &location in nearest").group is not groups[0]


def test_a_group_is_removed_with_its_last_agent(setup: Setup) -> None:
    """A later one is new."""
    setup.source("lamp", context="light")
    nearest, near = (
        setup.allot(LIGHT),
        setup.allot("Select nearof() Where &context = light and &location in rang:loc(5)"),
    )
    setup.manager.release(nearest)
    assert setup.allot(LIGHT).group is near.group
    setup.manager.release(near)
    setup.manager.release(setup.manager.allot(query(LIGHT)))
    assert setup.allot(LIGHT).group is not near.group
    assert setup.allot(LIGHT).group.sources == {"lamp"}


def test_an_agent_is_removed_with_its_last_subscription(setup: Setup) -> None:
    """A later one is new."""
    agent = setup.allot(LIGHT)
    setup.allot(LIGHT)
    setup.manager.release(agent)
    assert setup.manager.allot(query(LIGHT)) is agent
    setup.manager.release(agent)
    assert setup.manager.allot(query(LIGHT)) is not agent


def test_many_subscriptions_share_one_agent(setup: Setup) -> None:
    """If they have the same expression."""
    assert len({setup.allot(LIGHT) for _ in range(1000)}) == 1


def test_a_new_group_contains_registered_sources(setup: Setup) -> None:
    """Those without a position are unplaced."""
    setup.source("lamp", context="light")
    setup.source("lost", context="light", placed=False)
    setup.source("bell", context="noise")
    agent = setup.allot(LIGHT)
    assert agent.group.sources == {"lamp", "lost"}
    assert agent.group.unplaced == {"lost"}


@pytest.mark.parametrize("text", [LIGHT, "Select Where (&context = light or &context = x) and &location in nearest"])
def test_groups_follow_changes_of_sources(setup: Setup, text: str) -> None:
    """With and without required attributes."""
    agent = setup.allot(text)
    lamp = setup.source("lamp", context="light")
    assert agent.group.sources == {"lamp"}
    lamp = setup.change(lamp, context="noise")
    assert agent.group.sources == set()
    lamp = setup.change(lamp, context="light")
    assert agent.group.sources == {"lamp"}
    setup.manager.regroup([lamp], ())
    assert agent.group.sources == set()


def test_a_source_with_a_first_position_is_no_longer_unplaced(setup: Setup) -> None:
    """It stays in the group."""
    agent = setup.allot(LIGHT)
    lamp = setup.source("lamp", context="light", placed=False)
    assert agent.group.unplaced == {"lamp"}
    setup.entities.move(["lamp"], [1.0], [1.0], [1])
    setup.manager.regroup((), [lamp])
    assert agent.group.unplaced == set()
    assert agent.group.sources == {"lamp"}
