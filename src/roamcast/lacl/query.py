"""A query: its clauses, and the parts that binding and matching use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from roamcast.lacl.normalise import normalise
from roamcast.lacl.printing import condition_text, period_text, select_text
from roamcast.lacl.syntax import And, Condition, Every, Has, Inside, Region, Select, Text, conjuncts

__all__ = ["Plan", "Query", "plan_of", "to_text"]

Plan: TypeAlias = Literal["bind", "match"]


@dataclass(frozen=True, slots=True)
class Query:
    """The clauses of a query. `text` is the text it was parsed from; errors show an excerpt of it.

    The properties below split `where`. They are valid for checked queries.
    """

    select: Select
    where: Condition
    on: Condition | None = None
    every: Every | None = None
    life_control: Condition | None = None
    text: str = field(default="", compare=False, repr=False, kw_only=True)

    @property
    def location(self) -> Region | None:
        """The location constraint."""
        return next((part.region for part in conjuncts(self.where) if isinstance(part, Inside)), None)

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms that every event must have, without duplicates, in the order of the text.

        Terms inside `or` or `not` are not among them; they remain in the source expression.
        """
        lists = [part.terms for part in conjuncts(self.where) if isinstance(part, Has)]
        return tuple(dict.fromkeys(term.value for terms in lists for term in terms if isinstance(term, Text)))

    @property
    def source_condition(self) -> Condition | None:
        """The condition on `&` without the location constraint and `terms`, or None if nothing remains."""
        rest = tuple(part for part in conjuncts(self.where) if not isinstance(part, Inside | Has))
        return And(rest) if len(rest) > 1 else rest[0] if rest else None

    @property
    def expression_key(self) -> str:
        """The function and the condition on `&` in normal form. Queries with equal keys share a binding agent."""
        return f"{select_text(self.select)} Where {condition_text(normalise(self.where))}"


def plan_of(query: Query) -> Plan:
    """Return `match` for `all()`, which takes every event, and `bind` for queries that select sources."""
    return "match" if query.select.function == "all" else "bind"


def to_text(query: Query) -> str:
    """Print a query in canonical form: one line for Select and Where, one for each further clause."""
    lines = [f"{select_text(query.select)} Where {condition_text(query.where)}"]
    if query.on is not None:
        lines.append(f"On {condition_text(query.on)}")
    if query.every is not None:
        lines.append(f"Every {period_text(query.every)}")
    if query.life_control is not None:
        lines.append(f"Life-control {condition_text(query.life_control)}")
    return "\n".join(lines)
