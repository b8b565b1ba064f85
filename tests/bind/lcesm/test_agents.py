from __future__ import annotations

import math

import pytest
from binding import query

from roamcast.bind.lcesm.agents import Agent, Choice, Group, choice_of
from roamcast.bind.lcesm.states import Operation, SubscriptionState
from roamcast.bind.nearest.kernels.layout import Rule

LIGHT = "&context = light and "


def group(expression: str = "") -> Group:
    return Group(query(f"Select Where {expression}&location in nearest").source_expression, 0)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("Select Where &location in nearest", Choice(Rule.NEAREST, math.inf, 1)),
        ("Select Where &location in nearest(4)", Choice(Rule.NEAREST, math.inf, 4)),
        ("Select nearof() Where &location in rang:loc(1 km)", Choice(Rule.NEAROF, 1000, 1)),
        ("Select remoteof() Where &location in rang:loc(5)", Choice(Rule.REMOTEOF, 5, 1)),
        ("Select anyof() Where &location in rang:loc(0)", Choice(Rule.ANYOF, 0, 1)),
    ],
)
def test_how_sources_are_chosen(text: str, choice: Choice) -> None:
    """Function and location constraint together say how sources are chosen."""
    assert choice_of(query(text)) == choice


def test_whom_a_group_admits() -> None:
    """The attributes of a source decide whether it qualifies, its position does not."""
    assert group(LIGHT).admits({"context": "light", "floor": 2})
    assert not group(LIGHT).admits({"context": "noise"})
    assert not group(LIGHT).admits({})


def test_without_conditions_every_source_qualifies() -> None:
    """A location constraint alone admits all."""
    assert group().admits({})


@pytest.mark.parametrize(
    ("expression", "anchors"),
    [
        ("", ()),
        (LIGHT, (("context", "light"),)),
        ("&floor > 1 and &context = light and ", (("context", "light"),)),
        ("&kind in (bus, tram, bus) and ", (("kind", "bus"), ("kind", "tram"))),
        ("(&kind = bus or &kind = tram) and ", ()),
        ("not &kind = bus and ", ()),
    ],
)
def test_anchors(expression: str, anchors: tuple[tuple[str, str], ...]) -> None:
    """Anchors are attributes one of which every qualifying source must have."""
    assert group(expression).anchors == anchors


@pytest.mark.parametrize(
    ("state", "lost", "found", "operations"),
    [
        (SubscriptionState.START, False, True, [Operation.JOIN]),
        (SubscriptionState.START, False, False, []),
        (SubscriptionState.ACTIVE, True, False, [Operation.INACTIVE]),
        (SubscriptionState.ACTIVE, True, True, [Operation.INACTIVE, Operation.ACTIVE]),
        (SubscriptionState.ACTIVE, False, True, []),
        (SubscriptionState.INACTIVE, False, True, [Operation.ACTIVE]),
        (SubscriptionState.INACTIVE, False, False, []),
    ],
)
def test_operations_that_follow(state: SubscriptionState, lost: bool, found: bool, operations: list[Operation]) -> None:
    """A source event makes inactive, a source found makes active; a change of source is both."""
    agent = Agent(query("Select Where &location in nearest"), group())
    assert list(agent.follow(state, lost=lost, found=found)) == operations
