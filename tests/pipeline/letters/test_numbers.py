"""Numbering: letters are numbered densely per receiver, in an order that does not depend on the layout."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.pipeline.letters.numbers import Numbered, Receiver, in_order, number_letters
from roamcast.pipeline.letters.pending import DRAFTS_SCHEMA

Wish = tuple[str, str, str]  # node, subscriber, id
Match = tuple[str, int, list[int]]  # node, offset, rows of subscriptions


def drafts(matches: Sequence[Match], wishes: Sequence[Wish]) -> pa.Table:
    rows = [
        {
            "node": node, "offset": offset, "event": orjson.dumps([node, offset]).decode(),
            "office": wishes[row][0], "receiver": wishes[row][1], "subscription": wishes[row][2], "why": f"row {row}",
        }
        for node, offset, to in matches for row in to
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, DRAFTS_SCHEMA)


def number(matches: Sequence[Match], wishes: Sequence[Wish], last: Mapping[Receiver, int] | None = None) -> Numbered:
    return number_letters(in_order(drafts(matches, wishes)), last or {})


def letters(numbered: Numbered, office: str = "local") -> list[tuple[str, int, str, list[str | int]]]:
    """(receiver, number, subscription, [node, offset] of the event) in the order they lie in the outbox."""
    rows = numbered.letters[office].to_pylist()
    bodies = [orjson.loads(row["body"]) for row in rows]
    return [(r["receiver"], r["number"], b["subscription"], b["event"]) for r, b in zip(rows, bodies, strict=True)]


def test_nothing_matched_is_no_letter() -> None:
    """Without matches there are no letters and no numbers."""
    assert number([], [("local", "ann", "s1")]) == Numbered({}, {})


def test_numbers_are_dense_and_go_on() -> None:
    """Each receiver's numbers follow the last one it was given."""
    wishes = [("local", "ann", "s1"), ("local", "bob", "s2")]
    numbered = number([("local", 1, [0, 1]), ("local", 2, [0])], wishes, {Receiver("local", "bob"): 41})
    assert letters(numbered) == [
        ("ann", 1, "s1", ["local", 1]), ("ann", 2, "s1", ["local", 2]), ("bob", 42, "s2", ["local", 1]),
    ]  # fmt: skip
    assert numbered.last == {Receiver("local", "ann"): 2, Receiver("local", "bob"): 42}


def test_receivers_without_letters_keep_their_number() -> None:
    """Only those with new letters are written."""
    numbered = number([("local", 1, [0])], [("local", "ann", "s1")], {Receiver("local", "eve"): 3})
    assert numbered.last == {Receiver("local", "ann"): 1}


def test_the_order_is_node_offset_subscription() -> None:
    """Positions are compared as numbers, subscriptions by id, wherever their rows lie."""
    wishes = [("local", "ann", "s2"), ("local", "ann", "s1")]
    numbered = number([("south", 2, [0]), ("north", 10, [0, 1]), ("north", 9, [0])], wishes)
    assert [(n, s, e) for _, n, s, e in letters(numbered)] == [
        (1, "s2", ["north", 9]), (2, "s1", ["north", 10]), (3, "s2", ["north", 10]), (4, "s2", ["south", 2]),
    ]  # fmt: skip


def test_two_offices_number_an_equal_name_apart() -> None:
    """A receiver is a name at an office."""
    wishes = [("north", "ann", "s1"), ("south", "ann", "s1")]
    numbered = number([("north", 1, [0, 1])], wishes, {Receiver("south", "ann"): 7})
    assert letters(numbered, "north") == [("ann", 1, "s1", ["north", 1])]
    assert letters(numbered, "south") == [("ann", 8, "s1", ["north", 1])]
    assert numbered.letters.keys() == {"north", "south"}


def test_a_subscription_made_anew_gets_an_event_once() -> None:
    """Two rows of one subscription that match the same event are one letter."""
    wishes = [("local", "ann", "s1"), ("local", "ann", "s1"), ("local", "ann", "s2")]
    numbered = number([("far", 1, [0, 1, 2]), ("far", 2, [1])], wishes)
    assert [(n, s, e) for _, n, s, e in letters(numbered)] == [
        (1, "s1", ["far", 1]), (2, "s2", ["far", 1]), (3, "s1", ["far", 2]),
    ]  # fmt: skip


def test_of_equal_drafts_the_first_counts() -> None:
    """They may differ in why they came."""
    ordered = in_order(drafts([("far", 1, [1, 0])], [("local", "ann", "s1"), ("local", "ann", "s1")]))
    assert ordered["why"].to_pylist() == ["row 1"]


def test_a_body_names_subscription_reason_and_event() -> None:
    """In this order, as receivers read it."""
    (body,) = number([("local", 1, [0])], [("local", "ann", "s1")]).letters["local"]["body"].to_pylist()
    assert body == '{"subscription":"s1","why":"row 0","event":["local",1]}'


@pytest.mark.parametrize("text", ['"', "\\", "'", '","event":{}', "é🔥", "\n\t\x00", "", "\u2028"])
def test_bodies_are_json_whatever_texts_they_hold(text: str) -> None:
    """An id, and a reason, come back as they were given."""
    rows = drafts([("local", 1, [0])], [("local", text, text)])
    rows = rows.set_column(rows.column_names.index("why"), "why", pa.array([text], pa.string()))
    numbered = number_letters(in_order(rows), {})
    assert letters(numbered) == [(text, 1, text, ["local", 1])]
    assert orjson.loads(numbered.letters["local"]["body"][0].as_py())["why"] == text


_names = st.sampled_from(["a", "b", "é"])
_wishes = st.lists(st.tuples(_names, _names, st.sampled_from(["s", "t", '"'])), min_size=1, max_size=6, unique=True)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Match], list[Wish], dict[Receiver, int]]:
    wishes = draw(_wishes)
    places = draw(st.lists(st.tuples(_names, st.integers(1, 30)), unique=True, max_size=8))
    rows = st.lists(st.integers(0, len(wishes) - 1), min_size=1, unique=True)
    last = draw(st.dictionaries(st.builds(Receiver, _names, _names), st.integers(1, 2**40), max_size=4))
    return [(node, offset, draw(rows)) for node, offset in places], wishes, last


@thorough()
@given(world=worlds(), seed=st.integers(0, 2**16))
def test_equals_counting_by_hand(world: tuple[list[Match], list[Wish], dict[Receiver, int]], seed: int) -> None:
    """On random matches in random order it gives the numbers that counting one by one gives."""
    matches, wishes, last = world
    counted = dict(last)
    expected: dict[tuple[str, str, int], tuple[str, list[str | int]]] = {}
    for node, offset, to in sorted(matches):
        for office, name, id_ in sorted((wishes[row] for row in to), key=lambda wish: wish[2]):
            receiver = Receiver(office, name)
            counted[receiver] = counted.get(receiver, 0) + 1
            expected[office, name, counted[receiver]] = id_, [node, offset]
    numbered = number(random.Random(seed).sample(matches, len(matches)), wishes, last)
    found = {(o, to, n): (s, e) for o in numbered.letters for to, n, s, e in letters(numbered, o)}
    assert found == expected
    assert {**last, **numbered.last} == counted
