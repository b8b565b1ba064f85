"""Numbering: letters have dense numbers for each receiver, whatever the order of the input."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.pipeline.letters.numbers import LastNumbers, NumberedLetters, _quote, number_letters, order_letters
from roamcast.pipeline.schemas import PENDING_SCHEMA, RECEIVERS
from roamcast.pipeline.state.lookups import Integers

Subscription = tuple[str, str, str]  # node, subscriber, id
Receiver = tuple[str, str]  # office, name
Match = tuple[str, int, list[int]]  # node, offset, rows of subscriptions


def pending(matches: Sequence[Match], subscriptions: Sequence[Subscription]) -> pa.Table:
    rows = [
        {
            "node": node, "offset": offset, "event": orjson.dumps([node, offset]).decode(),
            "office": subscriptions[row][0], "receiver": subscriptions[row][1],
            "subscription": subscriptions[row][2], "why": f"row {row}",
        }
        for node, offset, to in matches for row in to
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, PENDING_SCHEMA)


def number(
    matches: Sequence[Match], subscriptions: Sequence[Subscription], last: Mapping[Receiver, int] | None = None
) -> NumberedLetters:
    return number_letters(order_letters(pending(matches, subscriptions)), last_numbers(last or {}))


def last_numbers(last: Mapping[Receiver, int]) -> LastNumbers:
    """The last number of each office and receiver."""

    def find(offices: pa.Array, receivers: pa.Array) -> Integers:
        names = zip(offices.to_pylist(), receivers.to_pylist(), strict=True)
        return np.array([last.get(name, 0) for name in names], np.int64)

    return find


def new_numbers(numbered: NumberedLetters) -> dict[Receiver, int]:
    """The last number of each receiver with new letters."""
    return {(row["office"], row["receiver"]): row["last"] for row in numbered.receivers.to_pylist()}


def letters(numbered: NumberedLetters, office: str = "local") -> list[tuple[str, int, str, list[str | int]]]:
    """(receiver, number, subscription, [node, offset] of the event) in the order of the outbox."""
    rows = numbered.by_office[office].to_pylist()
    bodies = [orjson.loads(row["body"]) for row in rows]
    return [(r["receiver"], r["number"], b["subscription"], b["event"]) for r, b in zip(rows, bodies, strict=True)]


def test_without_matches_there_are_no_letters() -> None:
    """And no numbers."""
    assert number([], [("local", "ann", "s1")]) == NumberedLetters({}, RECEIVERS.schema.empty_table())


def test_numbers_are_dense_and_continue() -> None:
    """The numbers of each receiver follow its last number."""
    subscriptions = [("local", "ann", "s1"), ("local", "bob", "s2")]
    numbered = number([("local", 1, [0, 1]), ("local", 2, [0])], subscriptions, {("local", "bob"): 41})
    assert letters(numbered) == [
        ("ann", 1, "s1", ["local", 1]), ("ann", 2, "s1", ["local", 2]), ("bob", 42, "s2", ["local", 1]),
    ]  # fmt: skip
    assert new_numbers(numbered) == {("local", "ann"): 2, ("local", "bob"): 42}


def test_receivers_without_letters_keep_their_number() -> None:
    """Only receivers with new letters are returned."""
    numbered = number([("local", 1, [0])], [("local", "ann", "s1")], {("local", "eve"): 3})
    assert new_numbers(numbered) == {("local", "ann"): 1}


def test_the_order_is_node_offset_subscription() -> None:
    """Offsets are compared as numbers, subscriptions by id."""
    subscriptions = [("local", "ann", "s2"), ("local", "ann", "s1")]
    numbered = number([("south", 2, [0]), ("north", 10, [0, 1]), ("north", 9, [0])], subscriptions)
    assert [(n, s, e) for _, n, s, e in letters(numbered)] == [
        (1, "s2", ["north", 9]), (2, "s1", ["north", 10]), (3, "s2", ["north", 10]), (4, "s2", ["south", 2]),
    ]  # fmt: skip


def test_the_last_known_event_comes_before_newer_ones() -> None:
    """Although it has the offset of the binding, in a journal that may come later."""
    rows = pending([("far", 1, [0]), ("local", 9, [0])], [("local", "ann", "s1")]).to_pylist()
    rows[1]["first"] = True
    numbered = number_letters(order_letters(pa.Table.from_pylist(rows, PENDING_SCHEMA)), last_numbers({}))
    assert [event for *_, event in letters(numbered)] == [["local", 9], ["far", 1]]


def test_the_journals_of_a_link_are_in_order_of_their_numbers() -> None:
    """After a gap the events of a peer continue in another journal."""
    names = [f"far+0123abcd+{before}" for before in (0, 9, 100)]
    numbered = number([(name, 1, [0]) for name in reversed(names)], [("local", "ann", "s1")])
    assert [event[0] for *_, event in letters(numbered)] == names


def test_two_offices_number_the_same_name_separately() -> None:
    """A receiver is a name at an office."""
    subscriptions = [("north", "ann", "s1"), ("south", "ann", "s1")]
    numbered = number([("north", 1, [0, 1])], subscriptions, {("south", "ann"): 7})
    assert letters(numbered, "north") == [("ann", 1, "s1", ["north", 1])]
    assert letters(numbered, "south") == [("ann", 8, "s1", ["north", 1])]
    assert numbered.by_office.keys() == {"north", "south"}


def test_a_recreated_subscription_gets_an_event_once() -> None:
    """Two rows of one subscription that match the same event are one letter."""
    subscriptions = [("local", "ann", "s1"), ("local", "ann", "s1"), ("local", "ann", "s2")]
    numbered = number([("far", 1, [0, 1, 2]), ("far", 2, [1])], subscriptions)
    assert [(n, s, e) for _, n, s, e in letters(numbered)] == [
        (1, "s1", ["far", 1]), (2, "s2", ["far", 1]), (3, "s1", ["far", 2]),
    ]  # fmt: skip


def test_of_equal_letters_the_first_counts() -> None:
    """They may differ in `why`."""
    ordered = order_letters(pending([("far", 1, [1, 0])], [("local", "ann", "s1"), ("local", "ann", "s1")]))
    assert ordered["why"].to_pylist() == ["row 1"]


def test_a_body_names_subscription_reason_and_event() -> None:
    """In this order."""
    (body,) = number([("local", 1, [0])], [("local", "ann", "s1")]).by_office["local"]["body"].to_pylist()
    assert body == '{"subscription":"s1","why":"row 0","event":["local",1]}'


@pytest.mark.parametrize("text", ['"', "\\", "'", '","event":{}', "é🔥", "\n\t\x00", "", "\u2028"])
def test_bodies_are_valid_json_for_any_text(text: str) -> None:
    """Ids and reasons are escaped."""
    rows = pending([("local", 1, [0])], [("local", text, text)])
    rows = rows.set_column(rows.column_names.index("why"), "why", pa.array([text], pa.string()))
    numbered = number_letters(order_letters(rows), last_numbers({}))
    assert letters(numbered) == [(text, 1, text, ["local", 1])]
    assert orjson.loads(numbered.by_office["local"]["body"][0].as_py())["why"] == text


_names = st.sampled_from(["a", "b", "é"])
_subscriptions = st.lists(
    st.tuples(_names, _names, st.sampled_from(["s", "t", '"'])), min_size=1, max_size=6, unique=True
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Match], list[Subscription], dict[Receiver, int]]:
    subscriptions = draw(_subscriptions)
    offsets = draw(st.lists(st.tuples(_names, st.integers(1, 30)), unique=True, max_size=8))
    rows = st.lists(st.integers(0, len(subscriptions) - 1), min_size=1, unique=True)
    last = draw(st.dictionaries(st.tuples(_names, _names), st.integers(1, 2**40), max_size=4))
    return [(node, offset, draw(rows)) for node, offset in offsets], subscriptions, last


@thorough()
@given(world=worlds(), seed=st.integers(0, 2**16))
def test_numbers_equal_a_plain_count(
    world: tuple[list[Match], list[Subscription], dict[Receiver, int]], seed: int
) -> None:
    """For random matches in random order."""
    matches, subscriptions, last = world
    counted = dict(last)
    expected: dict[tuple[str, str, int], tuple[str, list[str | int]]] = {}
    for node, offset, to in sorted(matches):
        for office, name, id_ in sorted((subscriptions[row] for row in to), key=lambda each: each[2]):
            receiver = office, name
            counted[receiver] = counted.get(receiver, 0) + 1
            expected[office, name, counted[receiver]] = id_, [node, offset]
    numbered = number(random.Random(seed).sample(matches, len(matches)), subscriptions, last)
    found = {(o, to, n): (s, e) for o in numbered.by_office for to, n, s, e in letters(numbered, o)}
    assert found == expected
    assert {**last, **new_numbers(numbered)} == counted


@given(st.lists(st.text() | st.sampled_from(['a"b', "a\\b", "a\nb", '\\"', "é", "\x7f"])))
def test_texts_are_quoted_as_json(texts: list[str]) -> None:
    """With characters of every kind."""
    column = pa.chunked_array([pa.array(texts, pa.string())])
    assert _quote(column).to_pylist() == [orjson.dumps(text).decode() for text in texts]
