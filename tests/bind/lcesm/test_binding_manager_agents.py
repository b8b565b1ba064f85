from __future__ import annotations

import math

import pytest
from binding import query

from roamcast.bind.lcesm.binding_manager import SourceChoice, SourceGroup, choice_of
from roamcast.bind.nearest.kernels.layout import Rule

LIGHT = "&context = light and "


def group(expression: str = "") -> SourceGroup:
    return SourceGroup(query(f"Select Where {expression}&location in nearest").source_condition, 0)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("Select Where &location in nearest", SourceChoice(Rule.NEAREST, math.inf, 1)),
        ("Select Where &location in nearest(4)", SourceChoice(Rule.NEAREST, math.inf, 4)),
        ("Select nearof() Where &location in rang:loc(1 km)", SourceChoice(Rule.NEAROF, 1000, 1)),
        ("Select remoteof() Where &location in rang:loc(5)", SourceChoice(Rule.REMOTEOF, 5, 1)),
        ("Select anyof() Where &location in rang:loc(0)", SourceChoice(Rule.ANYOF, 0, 1)),
    ],
)
def test_the_choice_follows_from_function_and_location(text: str, choice: SourceChoice) -> None:
    """Rule, radius and number of sources."""
    assert choice_of(query(text)) == choice


def test_a_group_admits_by_attributes() -> None:
    """The position does not matter."""
    assert group(LIGHT).admits({"context": "light", "floor": 2})
    assert not group(LIGHT).admits({"context": "noise"})
    assert not group(LIGHT).admits({})


def test_a_group_without_a_condition_admits_every_source() -> None:
    """The location constraint is not part of it."""
    assert group().admits({})


@pytest.mark.parametrize(
    ("expression", "required"),
    [
        ("", ()),
        (LIGHT, (("context", "light"),)),
        ("&floor > 1 and &context = light and ", (("context", "light"),)),
        ("&kind in (bus, tram, bus) and ", (("kind", "bus"), ("kind", "tram"))),
        ("(&kind = bus or &kind = tram) and ", ()),
        ("not &kind = bus and ", ()),
    ],
)
def test_required_attributes(expression: str, required: tuple[tuple[str, str], ...]) -> None:
    """Every qualifying source has one of them."""
    assert group(expression).required == required
