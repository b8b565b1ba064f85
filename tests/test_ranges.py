"""Sets of numbers as ranges, compared with Python's sets."""

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
def test_adding_is_what_it_is_for_a_set(steps: list[int | tuple[int, int]]) -> None:
    """After any numbers and ranges are added, in any order, exactly those are in it."""
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
def test_there_is_one_form_for_each_set(values: set[int]) -> None:
    """Equal sets are equal and hash alike, whichever way they were made, with a gap between any two ranges."""
    upwards = ranges_of(values)
    downwards = Ranges()
    for value in sorted(values, reverse=True):
        downwards = downwards.add(value)
    assert upwards == downwards
    assert hash(upwards) == hash(downwards)
    pairs = list(upwards)
    assert all(following[0] > last + 1 for (_, last), following in pairwise(pairs))


@given(st.sets(numbers), st.sets(numbers))
def test_union_is_that_of_sets(left: set[int], right: set[int]) -> None:
    """The union holds what either holds."""
    assert ranges_of(left).union(ranges_of(right)) == ranges_of(left | right)


@given(st.sets(numbers))
def test_the_first_gap_is_the_lowest_number_missing(values: set[int]) -> None:
    """`first_gap` is the lowest number not in it, and `prefix` the one before."""
    gap = next(number for number in range(1, 100) if number not in values)
    assert ranges_of(values).first_gap == gap
    assert ranges_of(values).prefix == gap - 1


@given(st.sets(numbers), numbers)
def test_the_range_of_a_number_is_the_longest_around_it(values: set[int], number: int) -> None:
    """`range_of` gives the whole run of numbers that a number lies in, and None if it is not there."""
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
def test_merge_says_which_numbers_were_new(before: set[int], arriving: list[int]) -> None:
    """A number is new the first time it comes, in any order, unless it was there before."""
    expected, seen = [], set(before)
    for number in arriving:
        expected.append(number not in seen)
        seen.add(number)
    merged, new = ranges_of(before).merge(arriving)
    assert new == expected
    assert merged == ranges_of(seen)


def test_merging_nothing_new_gives_the_same_value() -> None:
    """Who keeps ranges can tell by identity that nothing changed."""
    ranges = Ranges().add_range(1, 9)
    assert ranges.merge([3, 9, 3])[0] is ranges


@given(st.sets(numbers))
def test_text_gives_the_ranges_back(values: set[int]) -> None:
    """`from_text` reads what `to_text` writes."""
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
def test_any_other_text_is_corrupt(text: str) -> None:
    """Text that `to_text` would not write is refused with a hint."""
    with pytest.raises(CorruptionError) as caught:
        Ranges.from_text(text)
    assert caught.value.hint


@pytest.mark.parametrize("span", [(0, 3), (-1, 1), (3, 2), (1, HIGHEST + 1)])
def test_numbers_out_of_bounds_are_refused(span: tuple[int, int]) -> None:
    """Ranges begin with 1, run upwards and end where 64 bits do."""
    with pytest.raises(InputError):
        Ranges().add_range(*span)


@pytest.mark.parametrize("number", [0, -5, HIGHEST + 1])
@pytest.mark.parametrize("others", [[], [4], [4, 4]])
def test_merge_refuses_numbers_out_of_bounds(number: int, others: list[int]) -> None:
    """One number out of bounds refuses them all."""
    with pytest.raises(InputError):
        Ranges().merge([*others, number])


def test_the_highest_number_has_its_place() -> None:
    """The bounds themselves belong to what can be added."""
    ranges = Ranges().add(HIGHEST).add(1)
    assert HIGHEST in ranges
    assert Ranges.from_text(ranges.to_text()) == ranges


def test_ranges_travel_between_processes() -> None:
    """A pickled value comes back equal."""
    ranges = Ranges().add_range(2, 4).add(9)
    assert pickle.loads(pickle.dumps(ranges)) == ranges
