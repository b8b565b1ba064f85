"""Office messages as JSON."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.messages import (
    AddressUpdate,
    AddressUpdateReceipt,
    BundleReceipt,
    ChunkReceipt,
    LetterBundle,
    LocationQuery,
    LocationReply,
    MailboxChunk,
    MailboxClaim,
    PeerMessage,
    TraceQuery,
)
from roamcast.deliver.port import START, Bookkeeping, Cursor, FiledLetter, LetterKey, Mailbox, key_of
from roamcast.deliver.requests import LetterState, TraceLetter, TraceReply
from roamcast.errors import InputError
from roamcast.model import Letter
from roamcast.node.peers.message_codec import decode, encode, size_of
from roamcast.ranges import HIGHEST, Ranges

names = st.sampled_from(["north.pier.ann", "harbour.south.dock.ben"])
domains = st.sampled_from(["north", "harbour.south"])
numbers = st.integers(0, HIGHEST)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
letters = st.builds(Letter, names, texts, st.integers(1, HIGHEST), texts, texts, texts, numbers, st.none() | numbers)
bundles = st.lists(letters, max_size=3, unique_by=key_of)
keys = st.builds(LetterKey, texts, numbers)
ranges = st.sets(st.integers(1, 50)).map(lambda some: Ranges().merge(sorted(some))[0])
bookkeeping = st.builds(
    Bookkeeping,
    st.builds(Mailbox, numbers, st.dictionaries(texts, ranges, max_size=3)),
    numbers,
    st.dictionaries(texts, numbers, max_size=3),
    st.dictionaries(texts, ranges, max_size=3),
)


@st.composite
def posts(draw: st.DrawFn) -> LetterBundle:
    name = draw(names)
    return LetterBundle(
        name, tuple(it._replace(receiver=name) for it in draw(bundles)), draw(domains), draw(numbers), draw(texts)
    )


@st.composite
def portions(draw: st.DrawFn) -> MailboxChunk:
    name = draw(names)
    bundle = [it._replace(receiver=name) for it in draw(bundles)]
    places = sorted(draw(st.sets(st.integers(1, HIGHEST), max_size=len(bundle))))
    filed = tuple(map(FiledLetter, bundle, [*places, *[None] * (len(bundle) - len(places))]))
    cursor = draw(st.builds(Cursor, numbers, texts, numbers))
    more = draw(st.none() | bookkeeping), draw(st.frozensets(domains))
    return MailboxChunk(name, draw(numbers), draw(domains), cursor, filed, draw(st.booleans()), *more)


messages = st.one_of(
    posts(),
    st.builds(
        BundleReceipt,
        names,
        st.lists(keys).map(tuple),
        st.lists(keys).map(tuple),
        domains,
        numbers,
        st.booleans(),
        texts,
    ),
    st.builds(LocationQuery, names, domains),
    st.builds(LocationReply, names, domains | st.just(""), numbers),
    st.builds(MailboxClaim, names, numbers, domains, texts),
    portions(),
    st.builds(ChunkReceipt, names, numbers, st.builds(Cursor, numbers, texts, numbers), st.booleans()),
    st.builds(AddressUpdate, names, domains, numbers, st.booleans()),
    st.builds(AddressUpdateReceipt, names, numbers, domains, st.booleans()),
    st.builds(TraceQuery, st.builds(TraceLetter, texts, names, texts, numbers), domains, numbers),
    st.builds(TraceReply, texts, st.sampled_from(LetterState), domains),
)


@given(st.lists(messages, max_size=4))
def test_messages_round_trip(some: list[PeerMessage]) -> None:
    """Every kind of them."""
    assert decode(encode(some)) == some


@given(messages)
def test_the_size_of_a_message_is_an_upper_bound(message: PeerMessage) -> None:
    """So that no batch is refused for its size."""
    assert len(encode([message])) <= size_of(message)


BROKEN = (
    b"",
    b"[]",
    b'{"messages": 1}',
    b'{"messages": [["LetterBundle"]]}',
    b'{"messages": [["Register", {"name": "a.b.c"}]]}',
    b'{"messages": [["LocationQuery", {"name": "nobody", "from_office": "north"}]]}',
    b'{"messages": [["LocationQuery", {"name": "a.b.c"}]]}',
    b'{"messages": [["AddressUpdate", {"name": "a.b.c", "office": "n", "epoch": -1, "friend": true}]]}',
    b'{"messages": [["AddressUpdate", {"name":"a.b.c", "office":"n", "epoch":9223372036854775808, "friend":true}]]}',
)


@pytest.mark.parametrize("body", BROKEN)
def test_invalid_messages_are_refused(body: bytes) -> None:
    """With a hint."""
    with pytest.raises(InputError) as caught:
        decode(body)
    assert caught.value.hint


ANN, BEN = "north.pier.ann", "harbour.south.dock.ben"
ONE, TWO = Letter(ANN, "p", 1, "{}"), Letter(ANN, "p", 2, "{}")
LIES = (
    LetterBundle(BEN, (ONE,), "north", 1),
    LetterBundle(ANN, (ONE._replace(number=0),), "north", 1),
    LetterBundle(ANN, (ONE, ONE), "north", 1),
    MailboxChunk(BEN, 2, "north", START, (FiledLetter(ONE, 1),), last=True),
    MailboxChunk(ANN, 2, "north", START, (FiledLetter(ONE, 1), FiledLetter(TWO, 1)), last=True),
    MailboxChunk(ANN, 2, "north", START, (FiledLetter(ONE, 1), FiledLetter(ONE, 2)), last=True),
    MailboxChunk(ANN, 2, "north", START, (FiledLetter(ONE, 0),), last=True),
)


@pytest.mark.parametrize("lie", LIES)
def test_inconsistent_letters_are_refused(lie: PeerMessage) -> None:
    """For another receiver, without a number, with the same number, or with the same offset."""
    with pytest.raises(InputError):
        decode(encode([lie]))


@given(messages, st.data())
def test_a_message_with_a_missing_field_is_never_misread(message: PeerMessage, data: st.DataObject) -> None:
    """It is refused, or the field is optional."""
    whole = orjson.loads(encode([message]))
    fields = whole["messages"][0][1]
    part = data.draw(st.sampled_from(sorted(fields)))
    del fields[part]
    try:
        decode(orjson.dumps(whole))
    except InputError:
        return
    assert part in {"bookkeeping", "friends", "stamp", "move_proof"}


def test_only_the_first_of_many_errors_is_reported() -> None:
    """The error stays short, however many letters are invalid."""
    content = {"receiver": "north.pier.ann", "letters": [0] * 500, "sender": "north", "epoch": 1, "incarnation": ""}
    with pytest.raises(InputError, match=r"letters\[0\]") as caught:
        decode(orjson.dumps({"messages": [["LetterBundle", content]]}))
    assert len(caught.value.message) < 500
