"""Letters sent together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import MailboxClaim, OfficeEffect, OfficeInput
from roamcast.deliver.office import Office
from roamcast.deliver.requests import Arrive, LetterSent, LettersSent, Pull, Register, SendLetter, SendLetters
from roamcast.errors import ElsewhereError, RoamcastError
from roamcast.lab.models.office_store import MemoryOfficeStore

ANN, BOB, CAT, AWAY = (f"north.pier.{id}" for id in ("ann", "bob", "cat", "away"))
RULES = OfficeLimits(mailbox_letters=4, held_letters=3, queue_letters=3)

sends = st.builds(
    SendLetter,
    st.sampled_from([ANN, BOB, AWAY]),
    st.sampled_from([ANN, BOB, CAT, AWAY, "south.pier.dan", "north.pier.nobody", "no name"]),
    st.sampled_from(["{}", '{"a": 1}']),
    st.none() | st.integers(1, 6),
    st.just("title"),
    st.none() | st.integers(1, 5),
)


def handle(message: OfficeInput, office: Office) -> list[OfficeEffect] | RoamcastError:
    (outcome,) = office.handle_all([message], 7)
    return outcome


def new_office(limits: OfficeLimits) -> Office:
    """An office with three mailboxes, and one that has left."""
    office = Office("north", MemoryOfficeStore(), limits)
    for name in (ANN, BOB, CAT, AWAY):
        handle(Register(name), office)
    handle(MailboxClaim(AWAY, 2, "west", ""), office)
    return office


def comparable(outcome: list[OfficeEffect] | RoamcastError) -> str:
    return (
        repr(outcome)
        if isinstance(outcome, RoamcastError)
        else repr([e for e in outcome if not isinstance(e, LetterSent)])
    )


@given(
    groups=st.lists(st.lists(sends, max_size=8), max_size=4),
    limits=st.sampled_from([RULES, OfficeLimits()]),
)
def test_letters_sent_together_behave_as_if_sent_one_by_one(
    groups: list[list[SendLetter]], limits: OfficeLimits
) -> None:
    """Same numbers, same errors, same letters read."""
    together, alone = new_office(limits), new_office(limits)
    for group in groups:
        outcome = handle(SendLetters(tuple(group)), together)
        assert isinstance(outcome, list)
        (sent,) = [effect for effect in outcome if isinstance(effect, LettersSent)]
        expected: list[object] = []
        for message in group:
            single = handle(message, alone)
            expected += (
                [single] if isinstance(single, RoamcastError) else [e for e in single if isinstance(e, LetterSent)]
            )
        assert list(map(repr, sent.outcomes)) == list(map(repr, expected))
    for name in (ANN, BOB, CAT, AWAY):
        assert comparable(handle(Pull(name, 99), together)) == comparable(handle(Pull(name, 99), alone))


def test_letters_of_an_absent_sender_are_refused() -> None:
    office = new_office(OfficeLimits())
    (effect,) = office.handle(SendLetters((SendLetter(AWAY, ANN, "{}"), SendLetter(BOB, ANN, "{}"))), 0)[-1:]
    assert isinstance(effect, LettersSent)
    refused, sent = effect.outcomes
    assert isinstance(refused, ElsewhereError)
    assert sent == LetterSent(BOB, ANN, 1, True)


def test_numbers_continue_when_the_sender_returns() -> None:
    office = new_office(OfficeLimits())
    office.handle(SendLetters((SendLetter(ANN, BOB, "{}"), SendLetter(ANN, BOB, "{}"))), 0)
    office.handle(Arrive(ANN, 5), 0)
    assert office.handle(SendLetters((SendLetter(ANN, BOB, "{}"),)), 0)[-1] == LettersSent(
        (LetterSent(ANN, BOB, 3, True),)
    )
