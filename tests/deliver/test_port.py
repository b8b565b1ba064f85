"""How many letters fit, and the order of hand-over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.port import START, FiledLetter, cursor_of, is_expired, take_fitting
from roamcast.model import Letter


@given(st.lists(st.text(max_size=5)), st.integers(0, 30))
def test_take_fitting_returns_the_longest_prefix_and_at_least_one(bodies: list[str], size: int) -> None:
    sizes = [len(body.encode()) for body in bodies]
    most = max((n for n in range(len(bodies) + 1) if sum(sizes[:n]) <= size), default=0)
    assert take_fitting(bodies, size, lambda body: body) == bodies[: max(most, 1)]


def test_take_fitting_without_size_returns_everything() -> None:
    assert take_fitting(["a" * 1000] * 3, None, lambda body: body) == ["a" * 1000] * 3


def test_cursors_sort_readable_letters_before_held_ones() -> None:
    """Readable letters by offset, held ones by sender and number."""
    held = [FiledLetter(Letter("r", "a", 10, ""), None), FiledLetter(Letter("r", "b", 2, ""), None)]
    readable = [FiledLetter(Letter("r", "z", 9, ""), 1), FiledLetter(Letter("r", "a", 1, ""), 2)]
    cursors = [cursor_of(filed) for filed in readable + held]
    assert [START, *cursors] == sorted([*cursors, START])


def test_letter_expires_at_its_time() -> None:
    """Not before; one without a time never expires."""
    assert not is_expired(Letter("r", "s", 1, "", expires=10), 9)
    assert is_expired(Letter("r", "s", 1, "", expires=10), 10)
    assert not is_expired(Letter("r", "s", 1, ""), 2**62)
