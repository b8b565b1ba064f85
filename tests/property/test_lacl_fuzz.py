"""No text does more to the parser than be refused."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from lacl_queries import queries

from roamcast.lacl import LaclError, Query, check, explain, parse, to_text
from roamcast.space import PLANAR

TOKENS = (
    "Select", "Where", "On", "Every", "Life-control", "and", "or", "not", "in", "between", "has", "true", "anyof",
    "all", "nearest", "rang:loc", "box", "within", "room", "A", "&location", "&terms", "&a", "@", "@t", "#location",
    "#a", "(", ")", ",", "=", "<", "!=", "3", "-1.5e3", "1e999", "m", "km", "s", '"x y"', "'", '"', "\\", "--",
    "\n", "\r\n", "&", "#", ":", ";", "\u2028", "\ufeff", "温度", "İ", "ſelect", "\U0001f525", "e\u0301",
)  # fmt: skip


def outcome(text: str) -> Query | LaclError:
    """What reading and checking gives; any other error is for the test to show."""
    try:
        return check(parse(text), space=PLANAR)
    except LaclError as error:
        return error


def attempt(text: str) -> None:
    """A text is read and printed back, or refused at a place inside it."""
    result = outcome(text)
    if isinstance(result, Query):
        assert parse(to_text(result)) == result
        assert explain(result)["plan"] in ("bind", "match")
        return
    assert result.message in str(result)
    assert result.excerpt.count("\n") in (0, 1)
    if result.line is not None and result.column is not None:
        assert 1 <= result.line <= text.count("\n") + text.count("\r") + 1
        assert 1 <= result.column <= len(text) + 1


@given(st.text())
def test_any_text(text: str) -> None:
    """Random characters."""
    attempt(text)


@given(st.text(st.characters()))
def test_any_characters(text: str) -> None:
    """Random code points, lone surrogates among them."""
    attempt(text)


@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    """Random bytes, taken for text in the ways programs do."""
    attempt(data.decode("latin-1"))
    attempt(data.decode("utf-8", "surrogateescape"))


@given(st.lists(st.sampled_from(TOKENS), max_size=30), st.sampled_from(["", " "]))
def test_any_row_of_tokens(tokens: list[str], between: str) -> None:
    """The words of the language in any order."""
    attempt(between.join(tokens))


@given(st.lists(st.sampled_from(TOKENS), max_size=12))
def test_any_row_of_tokens_after_a_good_beginning(tokens: list[str]) -> None:
    """The words of the language in any order, deeper in the grammar."""
    attempt(f"Select all() Where &terms has (x) and {' '.join(tokens)}")


@given(queries(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_a_good_query_with_small_damage(query: Query, chance: Random, wounds: int) -> None:
    """Characters dropped, doubled, swapped or replaced."""
    text = list(to_text(query))
    for _ in range(wounds):
        at = chance.randrange(len(text))
        damage = chance.choice(
            ["", text[at] * 2, chance.choice(text), chance.choice(TOKENS), chr(chance.randrange(0xD800))]
        )
        text[at] = damage
    attempt("".join(text))


@given(queries(), st.data())
def test_a_good_query_that_is_cut_off(query: Query, data: st.DataObject) -> None:
    """Every beginning of a query is read or refused."""
    text = to_text(query)
    attempt(text[: data.draw(st.integers(0, len(text)))])
