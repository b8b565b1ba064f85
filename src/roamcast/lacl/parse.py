"""Parses a text into a query. Nesting is limited, so no text can exhaust the Python stack."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final, TypeAlias, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from roamcast.lacl.errors import LaclError, Span, SpanError
from roamcast.lacl.query import Query
from roamcast.lacl.regions import make_region
from roamcast.lacl.syntax import (
    And,
    Between,
    Boolean,
    Compare,
    Condition,
    Every,
    Function,
    Has,
    In,
    Inside,
    Literal,
    Nearest,
    Not,
    Number,
    Operator,
    Or,
    Region,
    Select,
    Sigil,
    SyntaxNode,
    Text,
    Variable,
    Within,
)
from roamcast.lacl.syntax_errors import unexpected_character, unexpected_token, wrong_unit
from roamcast.lacl.vocabulary import (
    DISTANCE_UNITS,
    FUNCTIONS,
    MAX_BYTES,
    MAX_NESTING,
    MAX_PERIOD,
    REGIONS,
    TIME_UNITS,
    display,
    suggest,
    terminal_for,
)

__all__ = ["parse"]

_OPERAND_ENDS: Final = ("AND", "OR", "RPAR", "ON", "EVERY", "LIFE_CONTROL")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_SIMPLE_ESCAPES: Final = {'"': '"', "'": "'", "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE_HINT: Final = r"""valid escapes: \" \' \\ \n \r \t \uXXXX \UXXXXXXXX"""

_Part: TypeAlias = Token | SyntaxNode


def parse(text: str) -> Query:
    """Parse one query. Raises LaclError, and nothing else, if the text is not a query."""
    try:
        _check_text(text)
        return _parse(text)
    except SpanError as error:
        raise LaclError.at(text, error) from None


def _check_text(text: str) -> None:
    try:
        size = len(text.encode()) if len(text) <= MAX_BYTES else len(text)
    except UnicodeEncodeError as error:
        raise SpanError("not a valid Unicode character", Span(error.start, error.start + 1)) from None
    if size > MAX_BYTES:
        raise SpanError(
            f"the query is longer than {MAX_BYTES:,} bytes", None, hint="split it into several subscriptions"
        )
    if (at := text.find("\0")) >= 0:
        raise SpanError("the character U+0000 is not allowed", Span(at, at + 1))


def _parse(text: str) -> Query:
    parser = _parser().parse_interactive(text)
    nesting = _NestingLimit()
    accepted: list[Token] = []
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):  # type: ignore[no-untyped-call]  # lark's
            nesting.enter(token)
            parser.feed_token(token)
            accepted.append(token)
        query = cast(Query, parser.feed_token(Token("$END", "")))
    except UnexpectedToken as error:
        raise unexpected_token(error.token, accepted, _replay(accepted)) from None
    except UnexpectedCharacters as error:
        raise unexpected_character(text, error.pos_in_stream or 0, accepted, _replay(accepted)) from None
    return Query(query.select, query.where, query.on, query.every, query.life_control, text=text)


def _replay(accepted: Sequence[Token]) -> InteractiveParser:
    """Return the parser as it was before the token that it refused: that token may have made it close a rule."""
    parser = _parser().parse_interactive("")
    for token in accepted:
        parser.feed_token(token)
    return parser


class _NestingLimit:
    """Counts open parentheses, and `not`s whose operand has not ended."""

    def __init__(self) -> None:
        self._open: list[str] = []

    def enter(self, token: Token) -> None:
        if token.type in ("NOT", "LPAR"):
            self._open.append(token.type)
            if len(self._open) > MAX_NESTING:
                span = Span(token.start_pos or 0, token.end_pos or 0)
                hint = "use and, or and in (…) instead"
                raise SpanError(f"nested more than {MAX_NESTING} levels deep", span, hint=hint)
        elif token.type in _OPERAND_ENDS:
            while self._open and self._open[-1] == "NOT":
                self._open.pop()
            if token.type == "RPAR" and self._open:
                self._open.pop()


@functools.cache
def _parser() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start="query",
        transformer=_Builder(),
        lexer_callbacks={"WORD": _keyword},
    )


def _keyword(word: Token) -> Token:
    return word.update(type=terminal_for(word))


@v_args(inline=True)
class _Builder(Transformer[Token, Query]):
    """Builds the syntax tree: one method for each rule of the grammar, called on each reduction, so nothing recurses.

    Raises SpanError for input that the grammar accepts and the tree cannot hold.
    """

    def query(
        self,
        select: Select,
        where: Condition,
        on: Condition | None,
        every: Every | None,
        life_control: Condition | None,
    ) -> Query:
        return Query(select, where, on, every, life_control)

    def select(self, keyword: Token, name: Token | None, left: Token | None, right: Token | None) -> Select:
        if name is None or right is None:
            return Select(None, span=_span(keyword))
        span = _span(name, right)
        if name.lower() not in FUNCTIONS:
            options = [f"{function}()" for function in FUNCTIONS]
            raise SpanError(f"unknown function {display(name)}", span, expected=options, hint=suggest(name, options))
        return Select(cast(Function, name.lower()), span=span)

    def where(self, _: Token, condition: Condition) -> Condition:
        return condition

    on = life_control = where

    def every(self, _: Token, digits: Token, unit: Token) -> Every:
        size = TIME_UNITS.get(unit.lower())
        if size is None:
            raise wrong_unit(unit, of_time=True)
        period = float(digits) * size
        if not abs(period) <= MAX_PERIOD:
            raise SpanError("the period is too long", _span(digits, unit), hint="the maximum is 100 years")
        return Every(round(period), span=_span(digits, unit))

    def disjunction(self, *parts: Any) -> Or:
        return Or(parts[::2], span=_span(parts[0], parts[-1]))

    def conjunction(self, *parts: Any) -> And:
        return And(parts[::2], span=_span(parts[0], parts[-1]))

    def negated(self, word: Token, operand: Condition) -> Not:
        return Not(operand, span=_span(word, operand))

    def grouped(self, _: Token, condition: Condition, __: Token) -> Condition:
        return condition

    def compare(self, name: Token, sign: Token, value: Literal) -> Compare:
        operator = cast(Operator, "!=" if sign == "<>" else str(sign))
        return Compare(_variable(name), operator, value, span=_span(name, value))

    def between(self, name: Token, word: Token | None, _: Token, low: Literal, __: Token, high: Literal) -> Condition:
        return _negate_if(word, Between(_variable(name), low, high, span=_span(name, high)))

    def listed(self, name: Token, word: Token | None, _: Token, __: Token, values: Any, right: Token) -> Condition:
        return _negate_if(word, In(_variable(name), values, span=_span(name, right)))

    def has(self, name: Token, _: Token, *parts: Any) -> Has:
        terms = parts[1] if len(parts) == 3 else parts
        return Has(_variable(name), terms, span=_span(name, parts[-1]))

    def inside(self, name: Token, word: Token | None, _: Token, region: Region | Text) -> Condition:
        variable = _variable(name)
        if isinstance(region, Text):
            region = _named_region(variable, region)
        return _negate_if(word, Inside(variable, region, span=_span(name, region)))

    def call(self, name: Token, _: Token, arguments: tuple[Literal, ...] | None, right: Token) -> Region:
        return make_region(name, arguments or (), _span(name, right))

    def values(self, *parts: Any) -> tuple[Literal, ...]:
        return parts[::2]

    def number(self, digits: Token, unit: Token | None) -> Number:
        span = _span(digits, unit or digits)
        if unit is not None and unit.lower() not in DISTANCE_UNITS:
            raise wrong_unit(unit, of_time=False)
        value = float(digits) * (DISTANCE_UNITS[unit.lower()] if unit else 1)
        if not math.isfinite(value):
            raise SpanError("the number is too large", span, hint="the maximum is about 1.8e308")
        return Number(value, span=span)

    def boolean(self, word: Token) -> Boolean:
        return Boolean(word.lower() == "true", span=_span(word))

    def bare(self, *words: Token) -> Text:
        return Text(_join_words(words), span=_span(words[0], words[-1]))

    def quoted(self, string: Token) -> Text:
        return Text(_unquote(string), span=_span(string))


def _span(first: _Part, last: _Part | None = None) -> Span:
    last = first if last is None else last
    start = first.start_pos if isinstance(first, Token) else first.span and first.span.start
    end = last.end_pos if isinstance(last, Token) else last.span and last.span.end
    return Span(start or 0, end or 0)


def _variable(token: Token) -> Variable:
    name = token[1:]
    if name[:1] in ('"', "'"):
        name = _unquote(Token.new_borrow_pos("STRING", name, token), offset=1)
        if not name:
            raise SpanError("the name is empty", _span(token))
    return Variable(cast(Sigil, token[0]), name or None, span=_span(token))


def _negate_if(word: Token | None, test: Condition) -> Condition:
    return test if word is None else Not(test, span=test.span)


def _named_region(variable: Variable, name: Text) -> Region:
    """Interpret a name after `in`: a place for the subscriber, `nearest` for a source."""
    if variable.name != "location":
        hint = f"put a list in parentheses, for example {variable.sigil}context in (light, noise)"
        raise SpanError("only &location and #location can be tested with a place", variable.span, hint=hint)
    if variable.sigil == "#":
        return Within(name.value, span=name.span)
    if name.value.lower() == "nearest":
        return Nearest(span=name.span)
    hint = suggest(name.value, REGIONS) or 'write a place as within("room A")'
    raise SpanError("not a region", name.span, expected=tuple(REGIONS.values()), hint=hint)


def _join_words(words: Sequence[Token]) -> str:
    """Join tokens with one space where the text has white space: the lexer splits `hall 3b` into three tokens."""
    pieces: list[str] = [words[0]]
    for before, word in itertools.pairwise(words):
        pieces.append(word if before.end_pos == word.start_pos else f" {word}")
    return "".join(pieces)


def _unquote(string: Token, offset: int = 0) -> str:
    """Remove the quotes of a string and resolve its escapes.

    `offset` is the distance from the token's start to the opening quote. Raises SpanError for an unknown escape and for
    U+0000, which databases cannot store.
    """
    start = (string.start_pos or 0) + offset + 1

    def resolve(match: re.Match[str]) -> str:
        escape = match[1]
        span = Span(start + match.start(), start + match.end())
        if len(escape) == 1:
            if escape not in _SIMPLE_ESCAPES:
                raise SpanError(f"unknown escape {match[0]}", span, hint=_ESCAPE_HINT)
            return _SIMPLE_ESCAPES[escape]
        code = int(escape[1:], 16)
        if code == 0 or 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise SpanError(f"{match[0]} is not a valid character", span, hint=_ESCAPE_HINT)
        return chr(code)

    return _ESCAPE.sub(resolve, string[1:-1])
