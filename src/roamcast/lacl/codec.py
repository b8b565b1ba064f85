"""Conditions as JSON values, so that a text is parsed once and carried on as a value.

A condition is a nested list with the operator first, as in Lisp:

    ["and", ["=", "&context", "light"], ["inside", "&location", ["rang:loc", 30.0]]]
    ["not", ["in", "&floor", [1.0, 2.0]]]
    ["between", "@", 10.0, 20.0]

The encoding carries no version: the record that holds the condition does. Decoding restores an equal tree, without
spans. It checks the form only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from roamcast import model
from roamcast.errors import InputError
from roamcast.lacl.syntax import (
    And,
    Between,
    Boolean,
    BoxRegion,
    Circle,
    Compare,
    Condition,
    Has,
    In,
    Inside,
    Literal,
    Nearest,
    Not,
    Number,
    Operator,
    Or,
    RangLoc,
    Region,
    Sigil,
    Text,
    Variable,
    Within,
)
from roamcast.lacl.vocabulary import MAX_NESTING, display

__all__ = ["JsonValue", "condition_from_json", "condition_to_json"]

JsonValue: TypeAlias = Any
"""What `json.loads` returns: dict, list, str, int, float, bool or None."""

_MAX_DEPTH: Final = 2 * MAX_NESTING + 8
"""Each open parenthesis of a text can hold an `or` of `and`s, which is two levels of the tree."""

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")


def condition_to_json(condition: Condition) -> list[JsonValue]:
    """Encode a condition."""
    match condition:
        case And(operands):
            return ["and", *map(condition_to_json, operands)]
        case Or(operands):
            return ["or", *map(condition_to_json, operands)]
        case Not(operand):
            return ["not", condition_to_json(operand)]
        case Compare(variable, operator, value):
            return [operator, _variable_to_json(variable), value.value]
        case In(variable, values):
            return ["in", _variable_to_json(variable), [value.value for value in values]]
        case Between(variable, low, high):
            return ["between", _variable_to_json(variable), low.value, high.value]
        case Has(variable, terms):
            return ["has", _variable_to_json(variable), [term.value for term in terms]]
        case Inside(variable, region):
            return ["inside", _variable_to_json(variable), _region_to_json(region)]


def _variable_to_json(variable: Variable) -> str:
    return f"{variable.sigil}{variable.name or ''}"


def _region_to_json(region: Region) -> list[JsonValue]:
    match region:
        case RangLoc(radius):
            return ["rang:loc", radius]
        case Nearest(count):
            return ["nearest", count]
        case BoxRegion(box):
            return ["box", *box]
        case Circle(x, y, radius):
            return ["circle", x, y, radius]
        case Within(place):
            return ["within", place]


def condition_from_json(value: JsonValue) -> Condition:
    """Decode a condition. Raises InputError if the value is not an encoded condition."""
    return _condition(value, _MAX_DEPTH)


def _condition(value: JsonValue, depth: int) -> Condition:
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise InputError(f"not an encoded condition: {_show(value)}")
    operator, *arguments = value
    if operator in ("and", "or"):
        if len(arguments) < 2:
            raise InputError(f"'{operator}' needs two operands or more")
        operands = tuple(_condition(argument, _deeper(depth)) for argument in arguments)
        return And(operands) if operator == "and" else Or(operands)
    if operator == "not":
        (operand,) = _arguments(operator, arguments, 1)
        return Not(_condition(operand, _deeper(depth)))
    return _test(operator, arguments)


def _deeper(depth: int) -> int:
    if depth == 0:
        raise InputError("the condition is nested too deeply")
    return depth - 1


def _test(operator: str, arguments: Sequence[JsonValue]) -> Condition:
    if operator in _COMPARISONS:
        variable, value = _arguments(operator, arguments, 2)
        return Compare(_variable(variable), cast("Operator", operator), _literal(value))
    match operator:
        case "in":
            variable, values = _arguments(operator, arguments, 2)
            return In(_variable(variable), _literals(values))
        case "between":
            variable, low, high = _arguments(operator, arguments, 3)
            return Between(_variable(variable), _literal(low), _literal(high))
        case "has":
            variable, terms = _arguments(operator, arguments, 2)
            return Has(_variable(variable), _literals(terms))
        case "inside":
            variable, region = _arguments(operator, arguments, 2)
            return Inside(_variable(variable), _region(region))
        case _:
            raise InputError(f"unknown operator {display(operator)}")


def _arguments(operator: str, arguments: Sequence[JsonValue], count: int) -> Sequence[JsonValue]:
    if len(arguments) != count:
        raise InputError(f"'{operator}' needs {count} argument{'s' * (count > 1)}, not {len(arguments)}")
    return arguments


def _variable(value: JsonValue) -> Variable:
    text = _text(value)
    if text[:1] not in ("&", "@", "#") or (len(text) == 1 and text != "@"):
        raise InputError(f"not a variable: {_show(value)}")
    return Variable(cast("Sigil", text[0]), text[1:] or None)


def _literals(value: JsonValue) -> tuple[Literal, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(f"not a list of values: {_show(value)}")
    return tuple(map(_literal, value))


def _literal(value: JsonValue) -> Literal:
    if isinstance(value, bool):
        return Boolean(value)
    return Text(_text(value)) if isinstance(value, str) else Number(_number(value))


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise InputError(f"not a string: {_show(value)}")
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InputError(f"a string with a character that is not allowed: {_show(value)}")
    return value


def _number(value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"not a number: {_show(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError("a number is not finite")
    return number


def _region(value: JsonValue) -> Region:
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise InputError(f"not an encoded region: {_show(value)}")
    name, *arguments = value
    if name not in _REGIONS:
        raise InputError(f"unknown region {display(name)}")
    count, decode = _REGIONS[name]
    return decode(*_arguments(name, arguments, count))


def _nearest(count: JsonValue) -> Nearest:
    if isinstance(count, bool) or not isinstance(count, int):
        raise InputError(f"not a count: {_show(count)}")
    return Nearest(count)


_REGIONS: Final[dict[str, tuple[int, Callable[..., Region]]]] = {
    "rang:loc": (1, lambda radius: RangLoc(_number(radius))),
    "nearest": (1, _nearest),
    "box": (4, lambda *sides: BoxRegion(model.Box(*map(_number, sides)))),
    "circle": (3, lambda *numbers: Circle(*map(_number, numbers))),
    "within": (1, lambda place: Within(_text(place))),
}


def _show(value: JsonValue) -> str:
    """A value for an error message: short, and safe to print on a terminal."""
    if isinstance(value, str):
        return display(value)
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else ascii(value)[:40]
