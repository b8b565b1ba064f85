"""The syntax tree: small frozen dataclasses, named after the rules of the grammar.

Equality ignores the position in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import TypeAlias

from roamcast import model
from roamcast.lacl.errors import Span

__all__ = [
    "And",
    "Between",
    "Boolean",
    "BoxRegion",
    "Circle",
    "Compare",
    "Condition",
    "Every",
    "Function",
    "Has",
    "In",
    "Inside",
    "Leaf",
    "Literal",
    "Nearest",
    "Not",
    "Number",
    "Operator",
    "Or",
    "RangLoc",
    "Region",
    "Select",
    "Sigil",
    "SyntaxNode",
    "Text",
    "Variable",
    "Within",
    "conjuncts",
    "leaves",
]

Sigil: TypeAlias = OneOf["&", "@", "#"]
Operator: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">="]
Function: TypeAlias = OneOf["anyof", "nearof", "remoteof", "all"]


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """`span` is the position in the text, or None if the node was not parsed from a text."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Text(SyntaxNode):
    value: str


@dataclass(frozen=True, slots=True)
class Number(SyntaxNode):
    """Distances are in metres."""

    value: float


@dataclass(frozen=True, slots=True)
class Boolean(SyntaxNode):
    value: bool


Literal: TypeAlias = Text | Number | Boolean


@dataclass(frozen=True, slots=True)
class Variable(SyntaxNode):
    """`&` is an attribute of the source, `@` a reading of its events, `#` an attribute of the subscriber.

    Only `@` may have no name; it then means the reading that has the name of the source's context.
    """

    sigil: Sigil
    name: str | None


@dataclass(frozen=True, slots=True)
class RangLoc(SyntaxNode):
    """Within `radius` metres of the current position of the subscriber."""

    radius: float


@dataclass(frozen=True, slots=True)
class Nearest(SyntaxNode):
    """The `count` sources nearest to the subscriber."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class BoxRegion(SyntaxNode):
    box: model.Box


@dataclass(frozen=True, slots=True)
class Circle(SyntaxNode):
    """Within `radius` metres of a point."""

    x: float
    y: float
    radius: float


@dataclass(frozen=True, slots=True)
class Within(SyntaxNode):
    """Inside a named place."""

    place: str


Region: TypeAlias = RangLoc | Nearest | BoxRegion | Circle | Within


@dataclass(frozen=True, slots=True)
class Compare(SyntaxNode):
    variable: Variable
    operator: Operator
    value: Literal


@dataclass(frozen=True, slots=True)
class In(SyntaxNode):
    """Equal to one of the values; there is at least one."""

    variable: Variable
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Between(SyntaxNode):
    """From `low` to `high`, both inclusive."""

    variable: Variable
    low: Literal
    high: Literal


@dataclass(frozen=True, slots=True)
class Has(SyntaxNode):
    """The event has all the terms; there is at least one."""

    variable: Variable
    terms: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Inside(SyntaxNode):
    variable: Variable
    region: Region


@dataclass(frozen=True, slots=True)
class Not(SyntaxNode):
    operand: Condition


@dataclass(frozen=True, slots=True)
class And(SyntaxNode):
    """Two operands or more."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or(SyntaxNode):
    """Two operands or more."""

    operands: tuple[Condition, ...]


Leaf: TypeAlias = Compare | In | Between | Has | Inside
Condition: TypeAlias = Leaf | Not | And | Or


@dataclass(frozen=True, slots=True)
class Select(SyntaxNode):
    """Which of the sources in the region are selected. None with `nearest`."""

    function: Function | None


@dataclass(frozen=True, slots=True)
class Every(SyntaxNode):
    """At most one letter in `period` microseconds."""

    period: int


def conjuncts(condition: Condition) -> Iterator[Condition]:
    """The operands of the top-level `and`, from left to right."""
    stack = [condition]
    while stack:
        match stack.pop():
            case And(operands):
                stack.extend(reversed(operands))
            case other:
                yield other


def leaves(condition: Condition) -> Iterator[Leaf]:
    """The single tests of a condition, from left to right."""
    stack: list[Condition] = [condition]
    while stack:
        match stack.pop():
            case And(operands) | Or(operands):
                stack.extend(reversed(operands))
            case Not(operand):
                stack.append(operand)
            case leaf:
                yield leaf
