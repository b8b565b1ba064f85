"""The rule of a mailbox, without any store."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.mailbox import FilingPlan, Mailbox, Release, plan_filing
from roamcast.errors import InputError
from roamcast.model import Letter
from roamcast.ranges import Ranges


def letter(number: int, sender: str = "s", receiver: str = "r") -> Letter:
    return Letter(receiver, sender, number, f"{sender}{number}")


def places(receipt: FilingPlan) -> dict[tuple[str, str, int], int]:
    """The places given, to new letters and to released ones, by receiver, sender and number."""
    given = {(f.receiver, f.sender, f.number): place for f, place in receipt.filed if place is not None}
    for r in receipt.released:
        for number in range(r.first, r.last + 1):
            given[r.receiver, r.sender, number] = r.offset + number - r.first
    return given


def test_letters_in_order_get_the_next_places() -> None:
    """Dense numbers that arrive in order are readable at once, in that order."""
    receipt = plan_filing({}, [letter(1), letter(2), letter(3)])
    assert [place for _, place in receipt.filed] == [1, 2, 3]
    assert receipt.changed == {"r": Mailbox(4, {"s": Ranges().add_range(1, 3)})}
    assert receipt.ready == {"r"}


def test_a_letter_behind_a_gap_is_held_back() -> None:
    """A letter whose predecessor is missing gets no place and wakes nobody, but counts as received."""
    receipt = plan_filing({}, [letter(2)])
    assert receipt.filed == [(letter(2), None)]
    assert receipt.changed == {"r": Mailbox(1, {"s": Ranges().add(2)})}
    assert receipt.ready == frozenset()


def test_closing_a_gap_releases_what_waited_in_number_order() -> None:
    """The missing letter gets the next place and the held ones follow, up to the next gap."""
    before = {"r": Mailbox(5, {"s": Ranges().add_range(2, 4).add(6)})}
    receipt = plan_filing(before, [letter(1)])
    assert receipt.filed == [(letter(1), 5)]
    assert receipt.released == [Release("r", "s", first=2, last=4, offset=6)]
    assert receipt.changed["r"].next_offset == 9


def test_within_one_call_letters_are_put_in_number_order() -> None:
    """Letters that arrive together in the wrong order are readable in the right one."""
    receipt = plan_filing({}, [letter(3), letter(2), letter(1)])
    assert places(receipt) == {("r", "s", 1): 1, ("r", "s", 2): 2, ("r", "s", 3): 3}


def test_letters_of_several_senders_keep_the_order_given() -> None:
    """Where numbers say nothing, the order of arrival counts."""
    receipt = plan_filing({}, [letter(1, "b"), letter(1, "a"), letter(2, "b"), letter(2, "a")])
    assert [(f.sender, place) for f, place in receipt.filed] == [("b", 1), ("a", 2), ("b", 3), ("a", 4)]


def test_a_letter_received_before_is_a_duplicate() -> None:
    """Duplicates change nothing, whether readable, held back, or twice in one call."""
    before = {"r": Mailbox(2, {"s": Ranges().add(1).add(5)})}
    receipt = plan_filing(before, [letter(1), letter(5), letter(7), letter(7)])
    assert receipt.duplicates == 3
    assert [f.number for f, _ in receipt.filed] == [7]
    assert plan_filing(before, [letter(1), letter(5)]) == FilingPlan([], [], {}, 2, frozenset())


def test_receivers_do_not_concern_each_other() -> None:
    """Each mailbox counts its own places and its own numbers of the same sender."""
    receipt = plan_filing({}, [letter(1, receiver="p"), letter(2, receiver="q"), letter(1, receiver="q")])
    assert places(receipt) == {("p", "s", 1): 1, ("q", "s", 1): 1, ("q", "s", 2): 2}
    assert receipt.ready == {"p", "q"}


@pytest.mark.parametrize("number", [0, -1, 2**63])
def test_numbers_out_of_bounds_are_refused(number: int) -> None:
    """A letter that no sender may number so refuses the whole call."""
    with pytest.raises(InputError):
        plan_filing({}, [letter(1), letter(number)])


some_letters = st.lists(
    st.builds(letter, st.integers(1, 8), sender=st.sampled_from("ab"), receiver=st.sampled_from("pq")), max_size=30
)


@given(some_letters, st.lists(st.integers(0, 30), max_size=4))
def test_how_letters_are_bundled_does_not_matter(letters: list[Letter], cuts: list[int]) -> None:
    """Any bundling of the same letters gives the same places and the same mailboxes as one by one."""

    def run(bundles: list[list[Letter]]) -> tuple[dict[tuple[str, str, int], int], dict[str, Mailbox], int]:
        mailboxes: dict[str, Mailbox] = {}
        given: dict[tuple[str, str, int], int] = {}
        duplicates = 0
        for bundle in bundles:
            receipt = plan_filing(mailboxes, bundle)
            mailboxes |= receipt.changed
            given |= places(receipt)
            duplicates += receipt.duplicates
        return given, mailboxes, duplicates

    bounds = sorted({0, len(letters), *(min(cut, len(letters)) for cut in cuts)})
    bundles = [letters[a:b] for a, b in pairwise(bounds)]
    assert run(bundles) == run([[one] for one in letters])


@given(some_letters)
def test_places_are_dense_and_follow_the_numbers(letters: list[Letter]) -> None:
    """The places of a mailbox are 1, 2, 3 …, and each sender's letters lie in number order with none left out."""
    given = places(plan_filing({}, letters))
    for receiver in "pq":
        in_order = sorted((place, s, n) for (r, s, n), place in given.items() if r == receiver)
        assert [place for place, _, _ in in_order] == list(range(1, len(in_order) + 1))
        for sender in "ab":
            read = [n for _, s, n in in_order if s == sender]
            sent = {one.number for one in letters if (one.receiver, one.sender) == (receiver, sender)}
            assert read == list(range(1, len(read) + 1))
            assert len(read) + 1 not in sent
