from __future__ import annotations

import pytest
from binding import query

from roamcast.bind.lcesm.agents import Agent, Group
from roamcast.bind.lcesm.requirements import Requirement, Requirements
from roamcast.bind.lcesm.states import Operation, SubscriptionState
from roamcast.errors import ConflictError, NotFoundError
from roamcast.lacl.syntax import Circle, Within

NEAREST = query("Select Where &location in nearest")


ANN, BOB = 7, 8


def row(id: str = "p", subscriber: int = ANN, text: str | None = None, *, match: bool = False) -> Requirement:
    wanted = NEAREST if text is None else query(text)
    return Requirement(
        id, subscriber, wanted, None if match else Agent(wanted, Group(None, 0)), SubscriptionState.START, 0
    )


def test_start_waits_for_a_source() -> None:
    """A subscription of the bind plan starts in state start."""
    requirement = row()
    requirement.start()
    assert requirement.state is SubscriptionState.START


def test_start_is_at_once_active_in_the_match_plan() -> None:
    """A subscription of the match plan needs no source."""
    requirement = row(match=True)
    requirement.start()
    assert requirement.state is SubscriptionState.ACTIVE


def test_operations_go_by_the_table() -> None:
    """A row changes its state by the operations only."""
    requirement = row()
    requirement.apply(Operation.JOIN, found=True)
    assert requirement.state is SubscriptionState.ACTIVE
    with pytest.raises(ConflictError):
        requirement.apply(Operation.JOIN, found=True)


def test_only_a_stopped_subscription_does_not_run() -> None:
    """Every state but stop is one in which a subscription runs."""
    requirement = row()
    assert requirement.runs
    requirement.apply(Operation.QUIT)
    assert not requirement.runs


def test_regions_are_those_of_life_control() -> None:
    """Each region of a life-control is named once, however deep and often it is tested."""
    life = "#location in room A or not (#location in circle(1, 2, 3) or #location in room A)"
    requirement = row(text=f"Select Where &location in nearest Life-control {life}")
    assert requirement.regions == (Within("room A"), Circle(1, 2, 3))


def test_without_life_control_there_are_no_regions() -> None:
    """A subscription without life-control listens to no location event."""
    assert row().regions == ()


def test_rows_by_subscriber() -> None:
    """The rows of a subscriber come with the latest first, until they are removed."""
    table = Requirements()
    first, second, third, other = row("q"), row("p"), row("s"), row("r", BOB)
    for each in (first, second, other, third):
        table.add(each)
    assert table.of(ANN) == [third, second, first]
    table.remove(second)
    assert table.of(ANN) == [third, first]
    table.remove(third)
    assert table.of(ANN) == [first]
    table.remove(first)
    assert table.of(ANN) == []
    assert list(table.all()) == [other]


def test_a_row_with_an_id_that_is_taken() -> None:
    """A row is not put in the place of another."""
    table = Requirements()
    table.add(first := row("p"))
    with pytest.raises(ConflictError, match="taken"):
        table.add(row("p", BOB))
    assert list(table.all()) == [first]


def test_unknown_row() -> None:
    """Who asks for a subscription that is not there is told so."""
    with pytest.raises(NotFoundError, match="no subscription 'p'"):
        Requirements().get("p")


def test_the_same_subscription_again() -> None:
    """A subscription is known by its id, if subscriber and query are the same."""
    table = Requirements()
    assert not table.has("p", ANN, NEAREST)
    table.add(row())
    assert table.has("p", ANN, query("Select Where &location in nearest"))


@pytest.mark.parametrize(("subscriber", "text"), [(BOB, NEAREST.text), (ANN, "Select Where &location in nearest(2)")])
def test_another_subscription_of_the_same_id(subscriber: int, text: str) -> None:
    """An id is taken by one subscription only."""
    table = Requirements()
    table.add(row())
    with pytest.raises(ConflictError, match="taken by another"):
        table.has("p", subscriber, query(text))
