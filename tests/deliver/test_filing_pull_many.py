"""Many mailboxes acknowledged and pulled in one message."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import MailboxClaim, OfficeInput
from roamcast.deliver.office import Office
from roamcast.deliver.requests import (
    Acknowledge,
    Acknowledged,
    Deposit,
    MailboxPull,
    Pull,
    Pulled,
    PulledMany,
    PullMany,
    Register,
)
from roamcast.errors import ElsewhereError, RoamcastError
from roamcast.lab.models.office_store import MemoryOfficeStore
from roamcast.model import Letter

ANN, BOB, CAT, AWAY = NAMES = tuple(f"north.pier.{id}" for id in ("ann", "bob", "cat", "away"))
NOBODY = "north.pier.nobody"
PLENTY = 10**9

some_letters = st.lists(
    st.builds(
        Letter,
        st.sampled_from(NAMES[:3]),
        st.sampled_from("pq"),
        st.integers(1, 5),
        st.sampled_from(["{}", "{é}"]),
        expires=st.none() | st.integers(1, 9),
    ),
    max_size=30,
)
some_pulls = st.lists(
    st.builds(MailboxPull, st.sampled_from([*NAMES, NOBODY]), st.integers(0, 6), st.integers(0, 4)),
    max_size=6,
    unique_by=lambda pull: pull.name,
)


def new_office(limits: OfficeLimits | None = None) -> Office:
    """An office with three mailboxes, and one that has left."""
    office = Office("north", MemoryOfficeStore(), limits)
    for name in NAMES:
        office.handle(Register(name), 0)
    office.handle(MailboxClaim(AWAY, 2, "west", ""), 0)
    return office


def reply(office: Office, message: OfficeInput, now: int) -> object:
    """The reply, or the error."""
    (outcome,) = office.handle_all([message], now)
    kinds = Pulled | PulledMany | Acknowledged
    return outcome if isinstance(outcome, Exception) else next(it for it in outcome if isinstance(it, kinds))


def one_by_one(office: Office, pull: MailboxPull, now: int) -> str:
    """What the requests for one mailbox alone return."""
    count = 0
    if pull.through and pull.limit:  # an invalid limit must not acknowledge
        acknowledged = reply(office, Acknowledge(pull.name, pull.through), now)
        if not isinstance(acknowledged, Acknowledged):
            return repr(acknowledged)
        count = acknowledged.count
    pulled = reply(office, Pull(pull.name, pull.limit, pull.through), now)
    if not isinstance(pulled, Pulled):
        return repr(pulled)
    return repr(Pulled(pulled.name, pulled.letters, pulled.expired, pulled.waiting, count))


@given(
    rounds=st.lists(st.tuples(some_letters, some_pulls, st.integers(0, 9)), max_size=4),
    limits=st.sampled_from([OfficeLimits(), OfficeLimits(mailbox_letters=3, held_letters=2)]),
)
@example(  # a refused acknowledgement makes no room
    [
        ([Letter(BOB, "q", 2, "{}"), Letter(BOB, "q", 5, "{}"), Letter(BOB, "p", 2, "{}")], [], 1),
        ([Letter(BOB, "p", 1, "{}")], [MailboxPull(BOB, 2, 3)], 3),
        ([], [MailboxPull(BOB, 2, 3)], 3),
    ],
    OfficeLimits(mailbox_letters=3, held_letters=2),
)
def test_mailboxes_pulled_together_behave_as_if_pulled_one_by_one(
    rounds: list[tuple[list[Letter], list[MailboxPull], int]], limits: OfficeLimits
) -> None:
    """Same letters, counts and errors, also if the mailboxes are full or letters expire."""
    together, alone = new_office(limits), new_office(limits)
    for letters, pulls, now in rounds:
        for office in (together, alone):
            office.handle(Deposit(tuple(letters)), now)
        many = reply(together, PullMany(tuple(pulls), PLENTY), now)
        assert isinstance(many, PulledMany)
        assert list(map(repr, many.outcomes)) == [one_by_one(alone, pull, now) for pull in pulls]


def fill(office: Office, *sizes: int) -> None:
    """Two letters of each size, to Ann, Bob and Cat in turn."""
    for name, size in zip(NAMES, sizes, strict=False):
        office.handle(Deposit(tuple(Letter(name, "p", number, "x" * size) for number in (1, 2))), 0)


def pulled(office: Office, size: int, first: int = 0) -> list[int]:
    """How many letters of each mailbox a request returns."""
    pulls = tuple(MailboxPull(name, 0, 9) for name in (ANN, BOB, CAT))
    many = reply(office, PullMany(pulls, size, first), 0)
    assert isinstance(many, PulledMany)
    assert all(isinstance(each, Pulled) and each.waiting == 2 for each in many.outcomes)
    return [len(each.letters) for each in many.outcomes if isinstance(each, Pulled)]


@pytest.mark.parametrize(
    ("size", "first", "counts"),
    [
        (60, 0, [2, 2, 2]),
        (59, 0, [1, 1, 1]),
        (30, 0, [1, 1, 1]),
        (20, 0, [1, 1, 0]),
        (20, 1, [0, 1, 1]),
        (20, 2, [1, 0, 1]),
        (20, 3, [1, 1, 0]),
        (0, 0, [1, 0, 0]),
    ],
)
def test_mailboxes_share_the_size_of_the_response(size: int, first: int, counts: list[int]) -> None:
    """At least one letter, in all; those who come too late have letters waiting."""
    office = new_office()
    fill(office, 10, 10, 10)
    assert pulled(office, size, first) == counts


def test_empty_mailboxes_have_no_share() -> None:
    office = new_office()
    fill(office, 10)
    many = reply(office, PullMany(tuple(MailboxPull(name, 0, 9) for name in (CAT, BOB, ANN)), 20), 0)
    assert isinstance(many, PulledMany)
    assert [len(each.letters) for each in many.outcomes if isinstance(each, Pulled)] == [0, 0, 2]


def test_a_large_letter_leaves_no_room_for_others() -> None:
    """A response exceeds its size by one letter at most."""
    office = new_office()
    fill(office, 1_000, 1, 1)
    assert pulled(office, 60) == [1, 0, 0]
    assert pulled(office, 60, first=1) == [1, 2, 2]


def test_an_absent_mailbox_is_refused_alone() -> None:
    office = new_office()
    fill(office, 1)
    many = reply(office, PullMany((MailboxPull(AWAY, 1, 9), MailboxPull(ANN, 1, 9)), PLENTY), 0)
    assert isinstance(many, PulledMany)
    refused, of_ann = many.outcomes
    assert isinstance(refused, ElsewhereError)
    assert isinstance(refused, RoamcastError)
    assert isinstance(of_ann, Pulled)
    assert ([letter.number for letter, _ in of_ann.letters], of_ann.acknowledged) == ([2], 1)
