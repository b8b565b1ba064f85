"""The normal form of a condition: what says the same in another way becomes equal, in the common cases.

Double negations go, `not` moves inwards to the single tests, `in` becomes equalities joined by `or`, `between`
two comparisons, `has` one test per term; nested `and`s and `or`s are joined, their operands sorted, each kept
once. A negated comparison stays: where the attribute is missing, `not &a < 1` holds and `&a >= 1` does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import And, Between, Compare, Condition, Has, In, Not, Or

__all__ = ["normalised"]


def normalised(condition: Condition) -> Condition:
    """Equivalent, and the same for all orders, groupings and spellings named above; idempotent."""
    return _normal(condition, negated=False)


def _normal(condition: Condition, *, negated: bool) -> Condition:
    match condition:
        case Not(operand):
            return _normal(operand, negated=not negated)
        case And(operands):
            return _joined(Or if negated else And, operands, negated=negated)
        case Or(operands):
            return _joined(And if negated else Or, operands, negated=negated)
        case In(variable, values):
            return _joined(And if negated else Or, [Compare(variable, "=", v) for v in values], negated=negated)
        case Between(variable, low, high):
            bounds = [Compare(variable, ">=", low), Compare(variable, "<=", high)]
            return _joined(Or if negated else And, bounds, negated=negated)
        case Has(variable, terms) if len(terms) > 1:
            return _joined(Or if negated else And, [Has(variable, (t,)) for t in terms], negated=negated)
        case _:
            return Not(condition) if negated else condition


def _joined(kind: type[And] | type[Or], operands: Iterable[Condition], *, negated: bool) -> Condition:
    parts: dict[str, Condition] = {}
    for operand in operands:
        part = _normal(operand, negated=negated)
        for single in part.operands if isinstance(part, kind) else (part,):
            parts[condition_text(single)] = single
    ordered = tuple(part for _, part in sorted(parts.items()))
    return kind(ordered) if len(ordered) > 1 else ordered[0]
