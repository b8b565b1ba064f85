"""A query as a whole: its clauses, and the parts that binding and matching ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from roamcast.lacl.normal import normalised
from roamcast.lacl.printing import condition_text, period_text, select_text
from roamcast.lacl.syntax import And, Condition, Every, Has, Inside, Region, Select, Text, conjuncts

__all__ = ["Plan", "Query", "plan_of", "to_text"]

Plan: TypeAlias = Literal["bind", "match"]


@dataclass(frozen=True, slots=True)
class Query:
    """The clauses, as written. `text` is what the query was read from; errors are shown in it.

    The properties below split `where`; they mean what they say once the query is checked.
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
        """The terms that every event must have, each once, in the order written.

        Terms below `or` or `not` are none of these: they stay in the source expression.
        """
        lists = [part.terms for part in conjuncts(self.where) if isinstance(part, Has)]
        return tuple(dict.fromkeys(term.value for terms in lists for term in terms if isinstance(term, Text)))

    @property
    def source_expression(self) -> Condition | None:
        """The condition on `&` without the location constraint and `terms`; None when nothing is left."""
        rest = tuple(part for part in conjuncts(self.where) if not isinstance(part, Inside | Has))
        return And(rest) if len(rest) > 1 else rest[0] if rest else None

    @property
    def expression_key(self) -> str:
        """Equal keys, same binding agent: the function and the whole condition on `&`, in normal form."""
        return f"{select_text(self.select)} Where {condition_text(normalised(self.where))}"


def plan_of(query: Query) -> Plan:
    """`match` for `all()`: every event there; `bind` for everything else: chosen sources."""
    return "match" if query.select.function == "all" else "bind"


def to_text(query: Query) -> str:
    """The canonical form, one line for Select and Where, one for each further clause."""
    lines = [f"{select_text(query.select)} Where {condition_text(query.where)}"]
    if query.on is not None:
        lines.append(f"On {condition_text(query.on)}")
    if query.every is not None:
        lines.append(f"Every {period_text(query.every)}")
    if query.life_control is not None:
        lines.append(f"Life-control {condition_text(query.life_control)}")
    return "\n".join(lines)
