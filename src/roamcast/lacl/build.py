"""From the rules of the grammar to the syntax tree. Runs while the parser reduces, so nothing here recurses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from lark import Token, Transformer, v_args

from roamcast.lacl.errors import Span, SpanError
from roamcast.lacl.query import Query
from roamcast.lacl.regions import region_of
from roamcast.lacl.strings import text_of
from roamcast.lacl.syntax import (
    And,
    Between,
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
    Truth,
    Variable,
    Within,
)
from roamcast.lacl.vocabulary import DISTANCE_UNITS, FUNCTIONS, MAX_PERIOD, REGIONS, TIME_UNITS, close_match, shown

__all__ = ["Builder"]

Part: TypeAlias = Token | SyntaxNode


@v_args(inline=True)
class Builder(Transformer[Token, Query]):
    """One method per rule. Raises SpanError for what the grammar lets through but no tree can hold."""

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
            raise SpanError(f"no function {shown(name)}", span, expected=options, hint=close_match(name, options))
        return Select(cast(Function, name.lower()), span=span)

    def where(self, _: Token, condition: Condition) -> Condition:
        return condition

    on = life_control = where

    def every(self, _: Token, digits: Token, unit: Token) -> Every:
        size = TIME_UNITS.get(unit.lower())
        if size is None:
            raise SpanError(f"{unit} is no unit of time", _span(unit), expected=tuple(TIME_UNITS))
        period = float(digits) * size
        if not abs(period) <= MAX_PERIOD:
            raise SpanError("this period is too long", _span(digits, unit), hint="at most 100 years")
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
        return _perhaps_not(word, Between(_variable(name), low, high, span=_span(name, high)))

    def listed(self, name: Token, word: Token | None, _: Token, __: Token, values: Any, right: Token) -> Condition:
        return _perhaps_not(word, In(_variable(name), values, span=_span(name, right)))

    def has(self, name: Token, _: Token, *parts: Any) -> Has:
        terms = parts[1] if len(parts) == 3 else parts
        return Has(_variable(name), terms, span=_span(name, parts[-1]))

    def inside(self, name: Token, word: Token | None, _: Token, region: Region | Text) -> Condition:
        variable = _variable(name)
        if isinstance(region, Text):
            region = _named_region(variable, region)
        return _perhaps_not(word, Inside(variable, region, span=_span(name, region)))

    def call(self, name: Token, _: Token, arguments: tuple[Literal, ...] | None, right: Token) -> Region:
        return region_of(name, arguments or (), _span(name, right))

    def values(self, *parts: Any) -> tuple[Literal, ...]:
        return parts[::2]

    def number(self, digits: Token, unit: Token | None) -> Number:
        span = _span(digits, unit or digits)
        if unit is not None and unit.lower() not in DISTANCE_UNITS:
            raise SpanError(f"{unit} is no unit of distance", _span(unit), expected=tuple(DISTANCE_UNITS))
        value = float(digits) * (DISTANCE_UNITS[unit.lower()] if unit else 1)
        if not math.isfinite(value):
            raise SpanError("this number is too large", span, hint="at most about 1.8e308")
        return Number(value, span=span)

    def truth(self, word: Token) -> Truth:
        return Truth(word.lower() == "true", span=_span(word))

    def bare(self, *words: Token) -> Text:
        return Text(_joined(words), span=_span(words[0], words[-1]))

    def quoted(self, string: Token) -> Text:
        return Text(text_of(string), span=_span(string))


def _span(first: Part, last: Part | None = None) -> Span:
    last = first if last is None else last
    start = first.start_pos if isinstance(first, Token) else first.span and first.span.start
    end = last.end_pos if isinstance(last, Token) else last.span and last.span.end
    return Span(start or 0, end or 0)


def _variable(token: Token) -> Variable:
    name = token[1:]
    if name[:1] in ('"', "'"):
        name = text_of(Token.new_borrow_pos("STRING", name, token), offset=1)
        if not name:
            raise SpanError("a name must not be empty", _span(token))
    return Variable(cast(Sigil, token[0]), name or None, span=_span(token))


def _perhaps_not(word: Token | None, test: Condition) -> Condition:
    return test if word is None else Not(test, span=test.span)


def _named_region(variable: Variable, name: Text) -> Region:
    """A bare or quoted name after `in`: a place for the subscriber, `nearest` for a source."""
    if variable.name != "location":
        hint = f"for a list use parentheses, as in {variable.sigil}context in (light, noise)"
        raise SpanError("only a location can be in a place", variable.span, hint=hint)
    if variable.sigil == "#":
        return Within(name.value, span=name.span)
    if name.value.lower() == "nearest":
        return Nearest(span=name.span)
    hint = close_match(name.value, REGIONS) or 'a place is written within("room A") here'
    raise SpanError("not a location constraint", name.span, expected=tuple(REGIONS.values()), hint=hint)


def _joined(words: Sequence[Token]) -> str:
    """With one space where the text has any: `hall 3b` is two words, though the lexer sees three."""
    pieces: list[str] = [words[0]]
    for before, word in itertools.pairwise(words):
        pieces.append(word if before.end_pos == word.start_pos else f" {word}")
    return "".join(pieces)
