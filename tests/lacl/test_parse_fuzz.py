"""No text makes the parser raise anything but LaclError."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from lacl_queries import queries
from profiles import thorough

from roamcast.lacl import LaclError, Query, check, explain, parse, to_text
from roamcast.space import PLANAR

TOKENS = (
    "Select", "Where", "On", "Every", "Life-control", "and", "or", "not", "in", "between", "has", "true", "anyof",
    "all", "nearest", "rang:loc", "box", "within", "room", "A", "&location", "&terms", "&a", "@", "@t", "#location",
    "#a", "(", ")", ",", "=", "<", "!=", "3", "-1.5e3", "1e999", "m", "km", "s", '"x y"', "'", '"', "\\", "--",
    "\n", "\r\n", "&", "#", ":", ";", "\u2028", "\ufeff", "温度", "İ", "ſelect", "\U0001f525", "e\u0301",
)  # fmt: skip


def parse_or_error(text: str) -> Query | LaclError:
    """Parse and check. Any other exception fails the test."""
    try:
        return check(parse(text), space=PLANAR)
    except LaclError as error:
        return error


def assert_handled(text: str) -> None:
    """A text is parsed and can be printed, or refused with a position inside it."""
    result = parse_or_error(text)
    if isinstance(result, Query):
        assert parse(to_text(result)) == result
        assert explain(result)["plan"] in ("bind", "match")
        return
    assert result.message in str(result)
    assert result.excerpt.count("\n") in (0, 1)
    if result.line is not None and result.column is not None:
        assert 1 <= result.line <= text.count("\n") + text.count("\r") + 1
        assert 1 <= result.column <= len(text) + 1


@thorough()
@given(st.text())
def test_any_text(text: str) -> None:
    """Random characters."""
    assert_handled(text)


@thorough()
@given(st.text(st.characters()))
def test_any_characters(text: str) -> None:
    """Random code points, including lone surrogates."""
    assert_handled(text)


@thorough()
@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    """Random bytes, decoded as Latin-1 and as UTF-8."""
    assert_handled(data.decode("latin-1"))
    assert_handled(data.decode("utf-8", "surrogateescape"))


@thorough()
@given(st.lists(st.sampled_from(TOKENS), max_size=30), st.sampled_from(["", " "]))
def test_any_sequence_of_tokens(tokens: list[str], between: str) -> None:
    """Tokens of the language in any order."""
    assert_handled(between.join(tokens))


@thorough()
@given(st.lists(st.sampled_from(TOKENS), max_size=12))
def test_any_sequence_of_tokens_after_a_valid_beginning(tokens: list[str]) -> None:
    """Tokens in any order, deeper in the grammar."""
    assert_handled(f"Select all() Where &terms has (x) and {' '.join(tokens)}")


@thorough()
@given(queries(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_a_valid_query_with_small_changes(query: Query, chance: Random, changes: int) -> None:
    """Characters dropped, doubled or replaced."""
    text = list(to_text(query))
    for _ in range(changes):
        at = chance.randrange(len(text))
        change = chance.choice(
            ["", text[at] * 2, chance.choice(text), chance.choice(TOKENS), chr(chance.randrange(0xD800))]
        )
        text[at] = change
    assert_handled("".join(text))


@thorough()
@given(queries(), st.data())
def test_a_truncated_query(query: Query, data: st.DataObject) -> None:
    """Every prefix of a query is parsed or refused."""
    text = to_text(query)
    assert_handled(text[: data.draw(st.integers(0, len(text)))])
