"""The rule of a mailbox, without a store."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.filing import plan_filing
from roamcast.deliver.port import FilingPlan, Mailbox, Release
from roamcast.errors import InputError
from roamcast.lab.models.office_store import after_filing
from roamcast.model import Letter
from roamcast.ranges import Ranges


def letter(number: int, sender: str = "s", receiver: str = "r") -> Letter:
    return Letter(receiver, sender, number, f"{sender}{number}")


def offsets(plan: FilingPlan) -> dict[tuple[str, str, int], int]:
    """The offsets of new and released letters, by receiver, sender and number."""
    assigned = {(f.receiver, f.sender, f.number): offset for f, offset in plan.filed if offset is not None}
    for r in plan.released:
        for number in range(r.first, r.last + 1):
            assigned[r.receiver, r.sender, number] = r.offset + number - r.first
    return assigned


def test_letters_in_order_get_the_next_offsets() -> None:
    plan = plan_filing({}, [letter(1), letter(2), letter(3)])
    assert [offset for _, offset in plan.filed] == [1, 2, 3]
    assert plan.received == {("r", "s"): Ranges().add_range(1, 3)}
    assert plan.next_offsets == {"r": 4}


def test_letter_behind_a_gap_is_held_back() -> None:
    """It gets no offset, but counts as received."""
    plan = plan_filing({}, [letter(2)])
    assert plan.filed == [(letter(2), None)]
    assert plan.received == {("r", "s"): Ranges().add(2)}
    assert plan.next_offsets == {}


def test_closing_a_gap_releases_held_letters_in_number_order() -> None:
    """Up to the next gap."""
    before = {"r": Mailbox(5, {"s": Ranges().add_range(2, 4).add(6)})}
    plan = plan_filing(before, [letter(1)])
    assert plan.filed == [(letter(1), 5)]
    assert plan.released == [Release("r", "s", first=2, last=4, offset=6)]
    assert plan.next_offsets == {"r": 9}


def test_letters_of_one_call_are_filed_in_number_order() -> None:
    plan = plan_filing({}, [letter(3), letter(2), letter(1)])
    assert offsets(plan) == {("r", "s", 1): 1, ("r", "s", 2): 2, ("r", "s", 3): 3}


def test_letters_of_several_senders_keep_their_order() -> None:
    plan = plan_filing({}, [letter(1, "b"), letter(1, "a"), letter(2, "b"), letter(2, "a")])
    assert [(f.sender, offset) for f, offset in plan.filed] == [("b", 1), ("a", 2), ("b", 3), ("a", 4)]


def test_letter_received_before_is_a_duplicate() -> None:
    """Whether readable, held back, or twice in one call."""
    before = {"r": Mailbox(2, {"s": Ranges().add(1).add(5)})}
    plan = plan_filing(before, [letter(1), letter(5), letter(7), letter(7)])
    assert plan.duplicates == 3
    assert [f.number for f, _ in plan.filed] == [7]
    assert plan_filing(before, [letter(1), letter(5)]) == FilingPlan([], [], {}, {}, 2)


def test_receivers_are_independent() -> None:
    """Each mailbox has its own offsets and numbers."""
    plan = plan_filing({}, [letter(1, receiver="p"), letter(2, receiver="q"), letter(1, receiver="q")])
    assert offsets(plan) == {("p", "s", 1): 1, ("q", "s", 1): 1, ("q", "s", 2): 2}
    assert plan.next_offsets == {"p": 2, "q": 3}


@pytest.mark.parametrize("number", [0, -1, 2**63])
def test_number_out_of_bounds_refuses_the_whole_call(number: int) -> None:
    with pytest.raises(InputError):
        plan_filing({}, [letter(1), letter(number)])


some_letters = st.lists(
    st.builds(letter, st.integers(1, 8), sender=st.sampled_from("ab"), receiver=st.sampled_from("pq")), max_size=30
)


@given(some_letters, st.lists(st.integers(0, 30), max_size=4))
def test_grouping_of_letters_does_not_matter(letters: list[Letter], cuts: list[int]) -> None:
    """Any grouping gives the same offsets and mailboxes as one by one."""

    def run(bundles: list[list[Letter]]) -> tuple[dict[tuple[str, str, int], int], dict[str, Mailbox], int]:
        mailboxes: dict[str, Mailbox] = {}
        assigned: dict[tuple[str, str, int], int] = {}
        duplicates = 0
        for bundle in bundles:
            plan = plan_filing(mailboxes, bundle)
            mailboxes |= after_filing(mailboxes, plan)
            assigned |= offsets(plan)
            duplicates += plan.duplicates
        return assigned, mailboxes, duplicates

    bounds = sorted({0, len(letters), *(min(cut, len(letters)) for cut in cuts)})
    bundles = [letters[a:b] for a, b in pairwise(bounds)]
    assert run(bundles) == run([[one] for one in letters])


@given(some_letters)
def test_offsets_are_dense_and_follow_the_numbers(letters: list[Letter]) -> None:
    """Offsets are 1, 2, 3, …; each sender's letters are in number order without gaps."""
    assigned = offsets(plan_filing({}, letters))
    for receiver in "pq":
        in_order = sorted((offset, s, n) for (r, s, n), offset in assigned.items() if r == receiver)
        assert [offset for offset, _, _ in in_order] == list(range(1, len(in_order) + 1))
        for sender in "ab":
            read = [n for _, s, n in in_order if s == sender]
            sent = {one.number for one in letters if (one.receiver, one.sender) == (receiver, sender)}
            assert read == list(range(1, len(read) + 1))
            assert len(read) + 1 not in sent
