"""Limits of a text, and what an error tells."""

from __future__ import annotations

import pickle
import re

import pytest
from lark import Lark

from roamcast.errors import InputError
from roamcast.lacl import MAX_BYTES, MAX_NESTING, LaclError, check, explain, holds, normalised, parse, to_text
from roamcast.lacl.parse import _parser
from roamcast.lacl.syntax import Every, Nearest
from roamcast.lacl.vocabulary import WORD

NEAREST = "Select Where &location in nearest"


def refusal(text: str) -> LaclError:
    """The error that a text gives."""
    with pytest.raises(LaclError) as caught:
        check(parse(text))
    return caught.value


def test_an_error_names_its_place() -> None:
    """Line and column count from 1, and the excerpt has the line and a caret."""
    error = refusal("Select anyof()\n  Where &context ~ light")
    assert (error.line, error.column) == (2, 18)
    assert error.where == "line 2, column 18"
    assert error.excerpt.split("\n") == ["      Where &context ~ light", " " * 21 + "^"]


def test_an_error_says_what_was_expected() -> None:
    """In words, not in terminals of the grammar."""
    error = refusal(f"{NEAREST} Every 3")
    assert error.expected == ("a unit (ms, s, min, h)",)
    assert "expected a unit" in error.message


def test_an_error_hints_at_a_close_word() -> None:
    """A misspelt keyword is recognised."""
    assert refusal(f"{NEAREST} Lifecontrol #a = 1").hint == "did you mean Life-control?"


def test_an_error_is_bad_input() -> None:
    """Callers that know InputError need not know LACL."""
    assert isinstance(refusal(""), InputError)


def test_an_error_survives_pickling() -> None:
    """It may come out of a worker process."""
    error = refusal("Select foo() Where &a = 1")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_carets_stand_below_wide_characters() -> None:
    """East Asian characters take two columns of a terminal, combining marks none."""
    line, carets = refusal('Select Where &context = "温度e\u0301" ?').excerpt.split("\n")
    assert line.endswith("?")
    assert len(carets) == len(line) + 2 - 1


def test_a_long_line_is_cut_around_the_place() -> None:
    """An excerpt stays readable on a line of thousands of characters."""
    line, carets = refusal(f"{NEAREST} and &a in ({'1, ' * 5_000}?{', 1' * 5_000})").excerpt.split("\n")
    assert len(line) < 120
    assert line[carets.index("^")] == "?"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_everywhere(end: str) -> None:
    """Lines are counted for each convention, and the excerpt holds no line end."""
    error = refusal(f"Select{end}Where{end}  ?{end}")
    assert (error.line, error.column, error.excerpt) == (3, 3, "      ?\n      ^")


def test_a_text_of_a_megabyte_is_refused() -> None:
    """At once, without reading it."""
    assert "longer than 65,536 bytes" in refusal(NEAREST + " " * 1_000_000).message


def test_the_longest_text_is_read() -> None:
    """The limit itself is within it, and counts bytes."""
    assert parse(NEAREST.ljust(MAX_BYTES)) == parse(NEAREST)
    assert "longer" in refusal(f"{NEAREST} -- " + "é" * (MAX_BYTES // 2)).message


@pytest.mark.parametrize("opening", ["(", "not ", "not ("])
def test_nesting_a_thousand_deep_is_refused(opening: str) -> None:
    """With an error that points at the first bracket too many, never a RecursionError."""
    error = refusal(f"{NEAREST} and {opening * 1_000}&a = 1{')' * 1_000 if '(' in opening else ''}")
    assert f"nested more than {MAX_NESTING} deep" in error.message


def test_the_deepest_nesting_works_throughout() -> None:
    """Everything that walks a tree can walk the deepest one."""
    depth = MAX_NESTING
    query = check(parse(f"{NEAREST} and {'(&a = 1 or &b = 2 and ' * depth}&c = 3{')' * depth}"))
    assert parse(to_text(query)) == query
    assert query.source_expression is not None
    assert holds(normalised(query.source_expression), {"b": 2, "c": 3})
    assert "&c = 3" in explain(query)["reads"]


def test_nots_that_are_closed_do_not_nest() -> None:
    """Many conditions side by side are not deep."""
    text = f"{NEAREST}{' and not (not &a not in (1))' * 500}"
    assert parse(text).location == Nearest()


def test_lone_surrogates_are_refused() -> None:
    """They could be neither stored nor sent."""
    assert refusal('Select Where &a = "\ud800"').column == 20


def test_the_null_character_is_refused() -> None:
    """Raw and escaped: stores cannot keep it."""
    assert "U+0000" in refusal('Select Where &a = "\0"').message
    assert "no character" in refusal('Select Where &a = "\\u0000"').message


def test_only_ascii_letters_spell_keywords() -> None:
    """A long s or a Kelvin sign is another letter."""
    assert refusal("ſelect Where &location in nearest").column == 1
    assert "unexpected" in refusal("Select anyof() Where &location in rang:loc(1 \u212am)").message


def test_periods_are_whole_microseconds() -> None:
    """Every unit comes out in microseconds."""
    periods = [parse(f"{NEAREST} Every {period}").every for period in ("2 ms", "1.5 s", "1 min", "1 h", "1.1ms")]
    assert periods == [Every(2_000), Every(1_500_000), Every(60_000_000), Every(3_600_000_000), Every(1_100)]


def test_the_printer_knows_the_words_of_the_grammar() -> None:
    """What the printer leaves bare is what the lexer takes for a word."""
    grammar: Lark = _parser()
    assert re.compile(grammar.get_terminal("WORD").pattern.to_regexp()) == re.compile(WORD)
