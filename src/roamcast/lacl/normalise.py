"""The normal form of a condition: equivalent conditions become equal, in the common cases.

Double negations are removed and `not` is moved inwards to the single tests. `in` becomes equalities joined by `or`,
`between` two comparisons, `has` one test for each term. Nested `and`s and `or`s are flattened, their operands sorted
and duplicates removed. A negated comparison is kept: if the attribute is missing, `not &a < 1` holds and `&a >= 1` does
not.
"""

from __future__ import annotations

from collections.abc import Iterable

from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import And, Between, Compare, Condition, Has, In, Not, Or

__all__ = ["normalise"]


def normalise(condition: Condition) -> Condition:
    """Return the normal form of a condition. Idempotent."""
    return _normalise(condition, negated=False)


def _normalise(condition: Condition, *, negated: bool) -> Condition:
    match condition:
        case Not(operand):
            return _normalise(operand, negated=not negated)
        case And(operands):
            return _combine(Or if negated else And, operands, negated=negated)
        case Or(operands):
            return _combine(And if negated else Or, operands, negated=negated)
        case In(variable, values):
            return _combine(And if negated else Or, [Compare(variable, "=", v) for v in values], negated=negated)
        case Between(variable, low, high):
            bounds = [Compare(variable, ">=", low), Compare(variable, "<=", high)]
            return _combine(Or if negated else And, bounds, negated=negated)
        case Has(variable, terms) if len(terms) > 1:
            return _combine(Or if negated else And, [Has(variable, (t,)) for t in terms], negated=negated)
        case _:
            return Not(condition) if negated else condition


def _combine(kind: type[And] | type[Or], operands: Iterable[Condition], *, negated: bool) -> Condition:
    parts: dict[str, Condition] = {}
    for operand in operands:
        part = _normalise(operand, negated=negated)
        for single in part.operands if isinstance(part, kind) else (part,):
            parts[condition_text(single)] = single
    ordered = tuple(part for _, part in sorted(parts.items()))
    return kind(ordered) if len(ordered) > 1 else ordered[0]
