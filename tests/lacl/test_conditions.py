"""When conditions hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from roamcast.lacl import holds, holds_rows, parse
from roamcast.lacl.conditions import Attribute, names_of
from roamcast.lacl.syntax import Condition, Region, Within

SOURCE: dict[str, Attribute] = {"context": "light", "floor": 2, "height": 2.5, "indoor": True, "broken": math.nan}


def where(text: str) -> Condition:
    """A condition as it stands in Where, On or Life-control."""
    return parse(f"Select Where {text}").where


@pytest.mark.parametrize(
    ("text", "wanted"),
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
def test_conditions_on_attributes(text: str, wanted: bool) -> None:
    """Each form of a test, on a source that has the attribute."""
    assert holds(where(text), SOURCE) is wanted


@pytest.mark.parametrize("test", ["= 1", "!= 1", "< 1", ">= 1", "in (1)", "between 0 and 9"])
def test_a_missing_attribute_fails_every_test(test: str) -> None:
    """And `not` of the test holds: logic has two values. NaN counts as missing."""
    for name in ("&nothing", "&broken"):
        assert not holds(where(f"{name} {test}"), SOURCE)
        assert holds(where(f"not {name} {test}"), SOURCE)


@pytest.mark.parametrize("test", ['&floor = "2"', '&floor != "2"', "&context != 3", "&indoor = 1", "&floor != true"])
def test_values_of_different_kinds_fail_every_test(test: str) -> None:
    """A number is no text, and true is not 1."""
    assert not holds(where(test), SOURCE)


def test_terms_must_all_be_there() -> None:
    """`has` asks for every term of its list."""
    assert holds(where("&terms has (fire, smoke)"), {}, terms={"fire", "smoke", "drill"})
    assert not holds(where("&terms has (fire, smoke)"), {}, terms={"fire"})


def test_regions_are_for_the_caller_to_judge() -> None:
    """The callback gets the region as written."""
    asked: list[Region] = []

    def inside(region: Region) -> bool:
        asked.append(region)
        return True

    assert holds(where("#location in room A and #role = doctor"), {"role": "doctor"}, inside=inside)
    assert asked == [Within("room A")]


def test_a_plain_reading_is_the_one_named_like_the_context() -> None:
    """Named readings do not depend on the context."""
    readings = {"light": 60.0, "noise": 40.0}
    assert holds(where("@ > 50"), readings, context="light")
    assert not holds(where("@ > 50"), readings, context="noise")
    assert not holds(where("@ > 50"), readings)
    assert holds(where("@noise < 50"), readings, context="light")


def test_rows_take_the_reading_of_their_own_context() -> None:
    """Each row has its own source, hence its own context."""
    readings = {"light": np.array([60.0, 60.0, math.nan, 60.0]), "noise": np.array([10.0, 10.0, 10.0, 10.0])}
    contexts = ["light", "noise", "light", None]
    assert holds_rows(where("@ > 50"), readings, contexts).tolist() == [True, False, False, False]
    assert holds_rows(where("@ != 10"), readings, contexts).tolist() == [True, False, False, False]


def test_a_reading_that_no_row_has_is_missing_everywhere() -> None:
    """No column is needed for it."""
    assert holds_rows(where("@dust > 1"), {}, ["light"]).tolist() == [False]
    assert holds_rows(where("not @dust > 1"), {}, ["light"]).tolist() == [True]


def test_no_rows_give_no_answers() -> None:
    """An empty batch is no special case."""
    assert holds_rows(where("@ > 1 and not @a < 2"), {"a": np.empty(0)}, []).shape == (0,)


def test_names_of_a_condition() -> None:
    """What a caller must fetch; None is plain `@`."""
    assert names_of(where("@ > 1 or not (@a < 2 and @b in (1, 2))")) == {None, "a", "b"}
