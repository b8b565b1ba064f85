"""Tests of roamcast.lsm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roamcast.lsm import first_to_merge


def test_a_small_piece_on_a_large_one_is_not_merged() -> None:
    assert first_to_merge([100, 10], ratio=4) == 2


def test_pieces_of_similar_size_are_merged() -> None:
    assert first_to_merge([100, 30], ratio=4) == 0


def test_a_piece_is_compared_with_everything_above_it() -> None:
    assert first_to_merge([1000, 100, 90, 1], ratio=2) == 1


def test_small_pieces_are_merged_whatever_their_ratio() -> None:
    assert first_to_merge([50, 1], ratio=4, small=51) == 0
    assert first_to_merge([51, 1], ratio=4, small=51) == 2


def test_an_empty_stack_and_a_single_piece_stay_as_they_are() -> None:
    assert first_to_merge([], ratio=4) == 0
    assert first_to_merge([7], ratio=4) == 1


@given(st.lists(st.integers(1, 1000)), st.integers(1, 8))
def test_after_each_merge_a_piece_outweighs_all_above_it(pushed: list[int], ratio: int) -> None:
    stack: list[int] = []
    for size in pushed:
        stack.append(size)
        first = first_to_merge(stack, ratio=ratio)
        stack[first:] = [sum(stack[first:])] if first < len(stack) else []
        assert all(stack[i] > ratio * sum(stack[i + 1 :]) for i in range(len(stack) - 1))
    assert sum(stack) == sum(pushed)
