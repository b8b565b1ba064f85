"""Prints the parts of a query in their canonical form. Parsing the output gives an equal tree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from roamcast.lacl.syntax import (
    And,
    Between,
    Boolean,
    BoxRegion,
    Circle,
    Compare,
    Condition,
    Every,
    Has,
    In,
    Inside,
    Literal,
    Nearest,
    Not,
    Number,
    Or,
    RangLoc,
    Region,
    Select,
    Text,
    Variable,
    Within,
)
from roamcast.lacl.vocabulary import TIME_UNITS, WORD, is_bare, is_bare_place

__all__ = ["condition_text", "number_text", "period_text", "quoted", "region_text", "select_text"]

_NAME = re.compile(WORD)
_ESCAPES: Final = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def condition_text(condition: Condition) -> str:
    """Print a condition with as few parentheses as possible."""
    match condition:
        case And(operands):
            return " and ".join(map(_operand_text, operands))
        case Or(operands):
            return " or ".join(_operand_text(o) if isinstance(o, Or) else condition_text(o) for o in operands)
        case Not(In() | Between() | Inside() as test):
            return _test_text(test, "not ")
        case Not(operand):
            return f"not {_operand_text(operand)}"
        case _:
            return _test_text(condition, "")


def _operand_text(condition: Condition) -> str:
    text = condition_text(condition)
    return f"({text})" if isinstance(condition, And | Or) else text


def _test_text(test: Compare | In | Between | Has | Inside, negation: str) -> str:
    variable = _variable_text(test.variable)
    match test:
        case Compare(_, operator, value):
            return f"{variable} {operator} {_literal_text(value)}"
        case In(_, values):
            return f"{variable} {negation}in {_list_text(values)}"
        case Between(_, low, high):
            return f"{variable} {negation}between {_literal_text(low)} and {_literal_text(high)}"
        case Has(_, terms):
            return f"{variable} has {_list_text(terms)}"
        case Inside(Variable("#"), Within(place)):
            return f"{variable} {negation}in {place if is_bare_place(place) else quoted(place)}"
        case Inside(_, region):
            return f"{variable} {negation}in {region_text(region)}"


def region_text(region: Region) -> str:
    match region:
        case RangLoc(radius):
            return f"rang:loc({number_text(radius)})"
        case Nearest(1):
            return "nearest"
        case Nearest(count):
            return f"nearest({count})"
        case BoxRegion(box):
            return f"box({', '.join(map(number_text, box))})"
        case Circle(x, y, radius):
            return f"circle({number_text(x)}, {number_text(y)}, {number_text(radius)})"
        case Within(place):
            return f"within({quoted(place)})"


def select_text(select: Select) -> str:
    return f"Select {select.function}()" if select.function else "Select"


def period_text(every: Every) -> str:
    """Print a period in the largest unit that gives a whole number; otherwise in milliseconds with decimals."""
    for unit, size in sorted(TIME_UNITS.items(), key=lambda item: -item[1]):
        if every.period and every.period % size == 0:
            return f"{every.period // size} {unit}"
    return f"{number_text(every.period / TIME_UNITS['ms'])} ms"


def number_text(value: float) -> str:
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def quoted(text: str) -> str:
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _variable_text(variable: Variable) -> str:
    if variable.name is None:
        return variable.sigil
    return variable.sigil + (variable.name if _NAME.fullmatch(variable.name) else quoted(variable.name))


def _literal_text(literal: Literal, *, bare: bool = True) -> str:
    match literal:
        case Text(value):
            return value if bare and is_bare(value) else quoted(value)
        case Number(value):
            return number_text(value)
        case Boolean(value):
            return "true" if value else "false"


def _list_text(literals: Iterable[Literal]) -> str:
    return f"({', '.join(_literal_text(literal, bare=False) for literal in literals)})"
