"""Evaluation of conditions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from roamcast.lacl import holds, parse
from roamcast.lacl.columns import holds_rows
from roamcast.lacl.conditions import Attribute, variable_names
from roamcast.lacl.syntax import Condition, Region, Within

SOURCE: dict[str, Attribute] = {"context": "light", "floor": 2, "height": 2.5, "indoor": True, "broken": math.nan}


def where(text: str) -> Condition:
    """Parse a condition."""
    return parse(f"Select Where {text}").where


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&context = light", True), ("&context = Light", False), ("&context != noise", True),
        ("&context in (noise, light)", True), ("&context not in (noise, light)", False),
        ("&floor = 2", True), ("&floor < 2", False), ("&floor <= 2", True), ("&floor <> 2", False),
        ("&height between 2 and 2.5", True), ("&height not between 2 and 2.5", False),
        ("&indoor = true", True), ("&indoor != true", False),
        ("&floor = 2 and &indoor = false", False), ("&floor = 3 or &indoor = true", True),
        ("not (&floor = 3 or &indoor = true)", False),
    ],
)  # fmt: skip
def test_conditions_on_attributes(text: str, expected: bool) -> None:
    """Every kind of test, on a source that has the attribute."""
    assert holds(where(text), SOURCE) is expected


@pytest.mark.parametrize("test", ["= 1", "!= 1", "< 1", ">= 1", "in (1)", "between 0 and 9"])
def test_a_missing_attribute_fails_every_test(test: str) -> None:
    """`not` of the test holds, because logic has two values. NaN counts as missing."""
    for name in ("&nothing", "&broken"):
        assert not holds(where(f"{name} {test}"), SOURCE)
        assert holds(where(f"not {name} {test}"), SOURCE)


@pytest.mark.parametrize("test", ['&floor = "2"', '&floor != "2"', "&context != 3", "&indoor = 1", "&floor != true"])
def test_values_of_different_types_fail_every_test(test: str) -> None:
    """A number is not a string, and true is not 1."""
    assert not holds(where(test), SOURCE)


def test_has_requires_all_terms() -> None:
    """One missing term makes the test false."""
    assert holds(where("&terms has (fire, smoke)"), {}, terms={"fire", "smoke", "drill"})
    assert not holds(where("&terms has (fire, smoke)"), {}, terms={"fire"})


def test_regions_are_evaluated_by_the_callback() -> None:
    """The callback gets the region of the query."""
    regions: list[Region] = []

    def inside(region: Region) -> bool:
        regions.append(region)
        return True

    assert holds(where("#location in room A and #role = doctor"), {"role": "doctor"}, inside=inside)
    assert regions == [Within("room A")]


def test_a_plain_reading_is_the_reading_named_by_the_context() -> None:
    """Named readings do not depend on the context."""
    readings = {"light": 60.0, "noise": 40.0}
    assert holds(where("@ > 50"), readings, context="light")
    assert not holds(where("@ > 50"), readings, context="noise")
    assert not holds(where("@ > 50"), readings)
    assert holds(where("@noise < 50"), readings, context="light")


def test_each_row_uses_the_reading_of_its_own_context() -> None:
    """Each row has its own source and therefore its own context."""
    readings = {"light": np.array([60.0, 60.0, math.nan, 60.0]), "noise": np.array([10.0, 10.0, 10.0, 10.0])}
    contexts = ["light", "noise", "light", None]
    assert holds_rows(where("@ > 50"), readings, contexts).tolist() == [True, False, False, False]
    assert holds_rows(where("@ != 10"), readings, contexts).tolist() == [True, False, False, False]


def test_a_reading_without_a_column_is_missing_in_every_row() -> None:
    """No column has to be passed for it."""
    assert holds_rows(where("@dust > 1"), {}, ["light"]).tolist() == [False]
    assert holds_rows(where("not @dust > 1"), {}, ["light"]).tolist() == [True]


def test_an_empty_batch_gives_an_empty_result() -> None:
    """Zero rows are not a special case."""
    assert holds_rows(where("@ > 1 and not @a < 2"), {"a": np.empty(0)}, []).shape == (0,)


def test_variable_names_of_a_condition() -> None:
    """None is plain `@`."""
    assert variable_names(where("@ > 1 or not (@a < 2 and @b in (1, 2))")) == {None, "a", "b"}
