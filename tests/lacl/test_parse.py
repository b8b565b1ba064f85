"""Limits of the parser, and the contents of its errors."""

from __future__ import annotations

import pickle
import re

import pytest
from lark import Lark

from roamcast.errors import InputError
from roamcast.lacl import MAX_BYTES, MAX_NESTING, LaclError, check, explain, holds, normalise, parse, to_text
from roamcast.lacl.parse import _parser
from roamcast.lacl.syntax import Every, Nearest
from roamcast.lacl.vocabulary import WORD

NEAREST = "Select Where &location in nearest"


def error_of(text: str) -> LaclError:
    """Return the error that a text causes."""
    with pytest.raises(LaclError) as caught:
        check(parse(text))
    return caught.value


def test_an_error_has_line_column_and_excerpt() -> None:
    """Line and column count from 1; the excerpt shows the line and a caret."""
    error = error_of("Select anyof()\n  Where &context ~ light")
    assert (error.line, error.column) == (2, 18)
    assert error.where == "line 2, column 18"
    assert error.excerpt.split("\n") == ["      Where &context ~ light", " " * 21 + "^"]


def test_an_error_says_what_was_expected() -> None:
    """In words, not as terminals of the grammar."""
    error = error_of(f"{NEAREST} Every 3")
    assert error.expected == ("a unit (ms, s, min, h)",)
    assert "expected a unit" in error.message


def test_an_error_suggests_a_similar_keyword() -> None:
    """A misspelt keyword gets a hint."""
    assert error_of(f"{NEAREST} Lifecontrol #a = 1").hint == "did you mean Life-control?"


def test_an_error_is_an_input_error() -> None:
    """Callers can catch InputError."""
    assert isinstance(error_of(""), InputError)


def test_an_error_survives_pickling() -> None:
    """It can be raised in a worker process."""
    error = error_of("Select foo() Where &a = 1")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_carets_account_for_wide_characters() -> None:
    """East Asian characters take two terminal columns, combining marks none."""
    line, carets = error_of('Select Where &context = "温度e\u0301" ?').excerpt.split("\n")
    assert line.endswith("?")
    assert len(carets) == len(line) + 2 - 1


def test_the_excerpt_of_a_long_line_is_shortened() -> None:
    """It shows the part around the error."""
    line, carets = error_of(f"{NEAREST} and &a in ({'1, ' * 5_000}?{', 1' * 5_000})").excerpt.split("\n")
    assert len(line) < 120
    assert line[carets.index("^")] == "?"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_all_line_endings_are_recognised(end: str) -> None:
    """Lines are counted correctly, and the excerpt has no line ending."""
    error = error_of(f"Select{end}Where{end}  ?{end}")
    assert (error.line, error.column, error.excerpt) == (3, 3, "      ?\n      ^")


def test_a_text_above_the_limit_is_refused() -> None:
    """The length is checked before parsing."""
    assert "longer than 65,536 bytes" in error_of(NEAREST + " " * 1_000_000).message


def test_a_text_at_the_limit_is_accepted() -> None:
    """The limit is inclusive and counts bytes."""
    assert parse(NEAREST.ljust(MAX_BYTES)) == parse(NEAREST)
    assert "longer" in error_of(f"{NEAREST} -- " + "é" * (MAX_BYTES // 2)).message


@pytest.mark.parametrize("opening", ["(", "not ", "not ("])
def test_deep_nesting_is_refused(opening: str) -> None:
    """With a LaclError, not a RecursionError."""
    error = error_of(f"{NEAREST} and {opening * 1_000}&a = 1{')' * 1_000 if '(' in opening else ''}")
    assert f"nested more than {MAX_NESTING} levels deep" in error.message


def test_the_deepest_allowed_nesting_works_everywhere() -> None:
    """Printing, normalising, evaluating and explaining handle the deepest tree."""
    depth = MAX_NESTING
    query = check(parse(f"{NEAREST} and {'(&a = 1 or &b = 2 and ' * depth}&c = 3{')' * depth}"))
    assert parse(to_text(query)) == query
    assert query.source_condition is not None
    assert holds(normalise(query.source_condition), {"b": 2, "c": 3})
    assert "&c = 3" in explain(query)["reads"]


def test_completed_nots_do_not_count_as_nesting() -> None:
    """Many conditions next to each other are not deep."""
    text = f"{NEAREST}{' and not (not &a not in (1))' * 500}"
    assert parse(text).location == Nearest()


def test_lone_surrogates_are_refused() -> None:
    """They cannot be encoded as UTF-8."""
    assert error_of('Select Where &a = "\ud800"').column == 20


def test_the_null_character_is_refused() -> None:
    """Raw and escaped: databases cannot store it."""
    assert "U+0000" in error_of('Select Where &a = "\0"').message
    assert "not a valid character" in error_of('Select Where &a = "\\u0000"').message


def test_keywords_are_ascii() -> None:
    """A long s or a Kelvin sign is not equal to an ASCII letter."""
    assert error_of("ſelect Where &location in nearest").column == 1
    assert "not a unit" in error_of("Select anyof() Where &location in rang:loc(1 \u212am)").message


def test_periods_are_whole_microseconds() -> None:
    """All units are converted to microseconds."""
    periods = [parse(f"{NEAREST} Every {period}").every for period in ("2 ms", "1.5 s", "1 min", "1 h", "1.1ms")]
    assert periods == [Every(2_000), Every(1_500_000), Every(60_000_000), Every(3_600_000_000), Every(1_100)]


def test_printer_and_grammar_agree_on_bare_words() -> None:
    """The printer omits quotes exactly where the lexer reads a word."""
    grammar: Lark = _parser()
    assert re.compile(grammar.get_terminal("WORD").pattern.to_regexp()) == re.compile(WORD)
