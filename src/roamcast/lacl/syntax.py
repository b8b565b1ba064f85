"""The syntax tree: small frozen values, named after the rules of the grammar.

Two nodes are equal when they say the same; where they stand in a text does not count.
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
    "Truth",
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
    """`span` is where the node stands in the text; None for a node that was not read from one."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Text(SyntaxNode):
    value: str


@dataclass(frozen=True, slots=True)
class Number(SyntaxNode):
    """Distances are in metres."""

    value: float


@dataclass(frozen=True, slots=True)
class Truth(SyntaxNode):
    value: bool


Literal: TypeAlias = Text | Number | Truth


@dataclass(frozen=True, slots=True)
class Variable(SyntaxNode):
    """`&` an attribute of the source, `@` a reading of its events, `#` an attribute of the subscriber.

    Only `@` may go without a name: it is then the reading named like the source's context.
    """

    sigil: Sigil
    name: str | None


@dataclass(frozen=True, slots=True)
class RangLoc(SyntaxNode):
    """Within `radius` metres of the subscriber, wherever it is."""

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
    """`radius` metres around a point."""

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
    """Equal to one of the values, of which there is at least one."""

    variable: Variable
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Between(SyntaxNode):
    """From `low` to `high`, both included."""

    variable: Variable
    low: Literal
    high: Literal


@dataclass(frozen=True, slots=True)
class Has(SyntaxNode):
    """All the terms, of which there is at least one."""

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
    """Which of the sources that satisfy the location constraint. None with `nearest`, which says it itself."""

    function: Function | None


@dataclass(frozen=True, slots=True)
class Every(SyntaxNode):
    """At most one notification in `period` microseconds."""

    period: int


def conjuncts(condition: Condition) -> Iterator[Condition]:
    """The conditions that must all hold, from left to right: what `and` joins at the top."""
    waiting = [condition]
    while waiting:
        match waiting.pop():
            case And(operands):
                waiting.extend(reversed(operands))
            case other:
                yield other


def leaves(condition: Condition) -> Iterator[Leaf]:
    """The tests that a condition is made of, from left to right."""
    waiting: list[Condition] = [condition]
    while waiting:
        match waiting.pop():
            case And(operands) | Or(operands):
                waiting.extend(reversed(operands))
            case Not(operand):
                waiting.append(operand)
            case leaf:
                yield leaf
