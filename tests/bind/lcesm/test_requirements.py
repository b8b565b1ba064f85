from __future__ import annotations

import pytest
from binding import query

from roamcast.bind.lcesm.binding_manager import Agent, SourceGroup
from roamcast.bind.lcesm.messages import SubscriptionState
from roamcast.bind.lcesm.requirements import Operation, Requirement, RequirementTable
from roamcast.errors import ConflictError, NotFoundError
from roamcast.lacl.syntax import Circle, Within

NEAREST = query("Select Where &location in nearest")
ANN, BOB = 7, 8


def row(id: str = "p", subscriber: int = ANN, text: str | None = None, *, match: bool = False) -> Requirement:
    checked = NEAREST if text is None else query(text)
    agent = None if match else Agent(checked, SourceGroup(None, 0))
    return Requirement(id, subscriber, checked, agent, SubscriptionState.START, 0)


def test_plan_bind_starts_in_state_start() -> None:
    """It waits for a source."""
    requirement = row()
    requirement.start()
    assert requirement.state is SubscriptionState.START


def test_plan_match_starts_in_state_active() -> None:
    """It needs no source."""
    requirement = row(match=True)
    requirement.start()
    assert requirement.state is SubscriptionState.ACTIVE


def test_states_change_by_allowed_operations() -> None:
    """Others raise."""
    requirement = row()
    requirement.apply(Operation.JOIN, has_source=True)
    assert requirement.state is SubscriptionState.ACTIVE
    with pytest.raises(ConflictError):
        requirement.apply(Operation.JOIN, has_source=True)


def test_only_a_stopped_subscription_does_not_run() -> None:
    """It runs in all other states."""
    requirement = row()
    assert requirement.runs
    requirement.apply(Operation.QUIT)
    assert not requirement.runs


def test_regions_are_those_of_life_control() -> None:
    """Each once, however deep and often it is tested."""
    life = "#location in room A or not (#location in circle(1, 2, 3) or #location in room A)"
    requirement = row(text=f"Select Where &location in nearest Life-control {life}")
    assert requirement.regions == (Within("room A"), Circle(1, 2, 3))


def test_without_life_control_there_are_no_regions() -> None:
    """It needs no location events."""
    assert row().regions == ()


def test_requirements_of_a_subscriber_are_listed_latest_first() -> None:
    """Until they are removed."""
    table = RequirementTable()
    first, second, third, other = row("q"), row("p"), row("s"), row("r", BOB)
    for each in (first, second, other, third):
        table.add(each)
    assert table.of_subscriber(ANN) == [third, second, first]
    table.remove(second)
    assert table.of_subscriber(ANN) == [third, first]
    table.remove(third)
    assert table.of_subscriber(ANN) == [first]
    table.remove(first)
    assert table.of_subscriber(ANN) == []
    assert list(table.all()) == [other]


def test_adding_an_id_in_use_raises() -> None:
    """The first one stays."""
    table = RequirementTable()
    table.add(first := row("p"))
    with pytest.raises(ConflictError, match="in use"):
        table.add(row("p", BOB))
    assert list(table.all()) == [first]


def test_an_unknown_subscription_raises() -> None:
    """With its id in the message."""
    with pytest.raises(NotFoundError, match="unknown subscription 'p'"):
        RequirementTable().get("p")


def test_a_repeated_subscription_is_recognised() -> None:
    """If subscriber and query are the same."""
    table = RequirementTable()
    assert not table.has("p", ANN, NEAREST)
    table.add(row())
    assert table.has("p", ANN, query("Select Where &location in nearest"))


@pytest.mark.parametrize(("subscriber", "text"), [(BOB, NEAREST.text), (ANN, "Select Where &location in nearest(2)")])
def test_another_subscription_with_the_same_id_raises(subscriber: int, text: str) -> None:
    """If subscriber or query are different."""
    table = RequirementTable()
    table.add(row())
    with pytest.raises(ConflictError, match="in use by another"):
        table.has("p", subscriber, query(text))
