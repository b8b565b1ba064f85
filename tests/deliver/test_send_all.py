"""Letters sent together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.context import Rules
from roamcast.deliver.messages import Arrive, Claim, Effect, Message, Pull, Register, Send, SendAll, Sent, SentAll
from roamcast.deliver.office import Office
from roamcast.errors import ElsewhereError, RoamcastError
from roamcast.store.office.memory import MemoryOfficeStore

ANN, BOB, CAT, AWAY = (f"north.pier.{id}" for id in ("ann", "bob", "cat", "away"))
RULES = Rules(capacity=4, early=3, queue=3)

sends = st.builds(
    Send,
    st.sampled_from([ANN, BOB, AWAY]),
    st.sampled_from([ANN, BOB, CAT, AWAY, "south.pier.dan", "north.pier.nobody", "no name"]),
    st.sampled_from(["{}", '{"a": 1}']),
    st.none() | st.integers(1, 6),
    st.just("title"),
    st.none() | st.integers(1, 5),
)


def told(message: Message, office: Office) -> list[Effect] | RoamcastError:
    (outcome,) = office.handle_all([message], 7)
    return outcome


def new_office(rules: Rules) -> Office:
    """One with three mailboxes, and one that has left."""
    office = Office("north", MemoryOfficeStore(), rules)
    for name in (ANN, BOB, CAT, AWAY):
        told(Register(name), office)
    told(Claim(AWAY, 2, "west", ""), office)
    return office


def said(outcome: list[Effect] | RoamcastError) -> str:
    return (
        repr(outcome) if isinstance(outcome, RoamcastError) else repr([e for e in outcome if not isinstance(e, Sent)])
    )


@given(
    groups=st.lists(st.lists(sends, max_size=8), max_size=4),
    rules=st.sampled_from([RULES, Rules()]),
)
def test_letters_sent_together_fare_as_if_sent_one_by_one(groups: list[list[Send]], rules: Rules) -> None:
    """The same are taken, with the same numbers, the others refused for the same reason, and all is read the same."""
    together, alone = new_office(rules), new_office(rules)
    for group in groups:
        outcome = told(SendAll(tuple(group)), together)
        assert isinstance(outcome, list)
        (sent,) = [effect for effect in outcome if isinstance(effect, SentAll)]
        expected: list[object] = []
        for message in group:
            single = told(message, alone)
            expected += [single] if isinstance(single, RoamcastError) else [e for e in single if isinstance(e, Sent)]
        assert list(map(repr, sent.outcomes)) == list(map(repr, expected))
    for name in (ANN, BOB, CAT, AWAY):
        assert said(told(Pull(name, 99), together)) == said(told(Pull(name, 99), alone))


def test_nobody_sends_from_where_it_is_not() -> None:
    """Each letter of one who is elsewhere is refused."""
    office = new_office(Rules())
    (effect,) = office.handle(SendAll((Send(AWAY, ANN, "{}"), Send(BOB, ANN, "{}"))), 0)[-1:]
    assert isinstance(effect, SentAll)
    refused, sent = effect.outcomes
    assert isinstance(refused, ElsewhereError)
    assert sent == Sent(BOB, ANN, 1, True)


def test_one_who_comes_back_goes_on_counting() -> None:
    """Numbers go on where they were."""
    office = new_office(Rules())
    office.handle(SendAll((Send(ANN, BOB, "{}"), Send(ANN, BOB, "{}"))), 0)
    office.handle(Arrive(ANN, 5), 0)
    assert office.handle(SendAll((Send(ANN, BOB, "{}"),)), 0)[-1] == SentAll((Sent(ANN, BOB, 3, True),))
