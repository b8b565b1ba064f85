"""Ranges, compared with Python's sets."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import CorruptionError, InputError
from roamcast.ranges import HIGHEST, Ranges

numbers = st.integers(1, 40)
spans = st.tuples(numbers, st.integers(0, 10)).map(lambda s: (s[0], s[0] + s[1]))


def ranges_of(values: set[int]) -> Ranges:
    ranges = Ranges()
    for value in sorted(values):
        ranges = ranges.add(value)
    return ranges


def values_of(ranges: Ranges) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(st.lists(st.one_of(numbers, spans)))
def test_add_behaves_like_a_set(steps: list[int | tuple[int, int]]) -> None:
    """For any numbers and ranges, in any order."""
    ranges, expected = Ranges(), set()
    for step in steps:
        if isinstance(step, int):
            ranges, expected = ranges.add(step), expected | {step}
        else:
            ranges, expected = ranges.add_range(*step), expected | set(range(step[0], step[1] + 1))
    assert values_of(ranges) == expected
    assert len(ranges) == len(expected)
    assert all((number in ranges) == (number in expected) for number in range(60))


@given(st.sets(numbers))
def test_equal_sets_have_equal_ranges_and_hashes(values: set[int]) -> None:
    """However they were made; there is a gap between any two ranges."""
    upwards = ranges_of(values)
    downwards = Ranges()
    for value in sorted(values, reverse=True):
        downwards = downwards.add(value)
    assert upwards == downwards
    assert hash(upwards) == hash(downwards)
    pairs = list(upwards)
    assert all(following[0] > last + 1 for (_, last), following in pairwise(pairs))


@given(st.sets(numbers), st.sets(numbers))
def test_union_behaves_like_a_set(left: set[int], right: set[int]) -> None:
    assert ranges_of(left).union(ranges_of(right)) == ranges_of(left | right)


@given(st.sets(numbers))
def test_first_gap_is_the_lowest_missing_number(values: set[int]) -> None:
    """`prefix` is the number before it."""
    gap = next(number for number in range(1, 100) if number not in values)
    assert ranges_of(values).first_gap == gap
    assert ranges_of(values).prefix == gap - 1


@given(st.sets(numbers), numbers)
def test_range_of_returns_the_whole_range(values: set[int], number: int) -> None:
    """None if the number is not in the set."""
    span = ranges_of(values).range_of(number)
    if number not in values:
        assert span is None
    else:
        assert span is not None
        first, last = span
        assert set(range(first, last + 1)) <= values
        assert first - 1 not in values
        assert last + 1 not in values


@given(st.sets(numbers), st.lists(numbers))
def test_merge_returns_which_numbers_were_new(before: set[int], arriving: list[int]) -> None:
    expected, seen = [], set(before)
    for number in arriving:
        expected.append(number not in seen)
        seen.add(number)
    merged, new = ranges_of(before).merge(arriving)
    assert new == expected
    assert merged == ranges_of(seen)


def test_merge_of_known_numbers_returns_the_same_object() -> None:
    """So callers can compare by identity."""
    ranges = Ranges().add_range(1, 9)
    assert ranges.merge([3, 9, 3])[0] is ranges


@given(st.sets(numbers))
def test_from_text_inverts_to_text(values: set[int]) -> None:
    ranges = ranges_of(values)
    assert Ranges.from_text(ranges.to_text()) == ranges


def test_text_is_compact() -> None:
    """A range is written as its ends, a single number as itself."""
    assert Ranges().add_range(1, 5).add(7).to_text() == "1-5,7"
    assert Ranges().to_text() == ""


@pytest.mark.parametrize(
    "text",
    [
        "x", "-", ",", "1,", "1-", "-1", "0", "0-3", "3-1", "2-2", "1-2-3", "1-3,4", "1,1", "5,1", "1-5,3",
        " 1", "+1", "01", "1_0", "١", "1;3", "1.5", str(HIGHEST + 1), f"1-{HIGHEST + 1}", "9" * 5000,
    ],
)  # fmt: skip
def test_other_text_raises_corruption_error_with_hint(text: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        Ranges.from_text(text)
    assert caught.value.hint


@pytest.mark.parametrize("span", [(0, 3), (-1, 1), (3, 2), (1, HIGHEST + 1)])
def test_add_refuses_numbers_out_of_bounds(span: tuple[int, int]) -> None:
    with pytest.raises(InputError):
        Ranges().add_range(*span)


@pytest.mark.parametrize("number", [0, -5, HIGHEST + 1])
@pytest.mark.parametrize("others", [[], [4], [4, 4]])
def test_merge_refuses_numbers_out_of_bounds(number: int, others: list[int]) -> None:
    """One number out of bounds refuses them all."""
    with pytest.raises(InputError):
        Ranges().merge([*others, number])


def test_bounds_are_inclusive() -> None:
    ranges = Ranges().add(HIGHEST).add(1)
    assert HIGHEST in ranges
    assert Ranges.from_text(ranges.to_text()) == ranges


def test_ranges_can_be_pickled() -> None:
    ranges = Ranges().add_range(2, 4).add(9)
    assert pickle.loads(pickle.dumps(ranges)) == ranges
