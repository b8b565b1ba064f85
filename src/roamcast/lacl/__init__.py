"""LACL, the subscription language. Turns a text into a checked query; no I/O."""

from roamcast.lacl.check import check
from roamcast.lacl.conditions import holds
from roamcast.lacl.errors import LaclError
from roamcast.lacl.explain import explain
from roamcast.lacl.normalise import normalise
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
    "normalise",
    "parse",
    "plan_of",
    "to_text",
]
