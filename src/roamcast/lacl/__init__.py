"""LACL, the subscription language: text in, a checked query out. Pure."""

from roamcast.lacl.check import check
from roamcast.lacl.conditions import holds, holds_rows
from roamcast.lacl.errors import LaclError
from roamcast.lacl.explain import explain
from roamcast.lacl.normal import normalised
from roamcast.lacl.parse import parse
from roamcast.lacl.query import Plan, Query, plan_of, to_text
from roamcast.lacl.vocabulary import MAX_BYTES, MAX_NESTING

__all__ = [
    "MAX_BYTES",
    "MAX_NESTING",
    "LaclError",
    "Plan",
    "Query",
    "check",
    "explain",
    "holds",
    "holds_rows",
    "normalised",
    "parse",
    "plan_of",
    "to_text",
]
