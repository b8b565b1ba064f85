"""Why an event matches a subscription, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, reduce
from math import isinf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.bodies import LINK, decode_condition
from roamcast.journal.records import FORWARDED
from roamcast.lacl.printing import condition_text, number_text, quoted, region_text
from roamcast.lacl.syntax import Circle, Within

__all__ = ["DESCRIBED", "describe_condition", "describe_match", "describe_matches"]

_SIDES: Final = ("min_x", "min_y", "max_x", "max_y")
_RARE: Final = ("circle", "place", "source", "on", "moving_radius")
DESCRIBED: Final = (*_SIDES, "terms", *_RARE)
"""The columns of SUBSCRIPTIONS that a description depends on, beside the subscriber."""

# Arrow prints numbers in this range as `number_text` does, and these texts need no escapes.
_SMALLEST: Final = 1e-4
_LARGEST: Final = 1e9
_PLAIN_TEXT: Final = r"^[ !#-\[\]-~]*$"


def describe_matches(rows: pa.Table) -> pa.Array:
    """Why events match each of these rows of SUBSCRIPTIONS. Nobody reads that of a link, so it is not described.

    A box and terms, which are by far the most frequent, are described by columns; the others one by one.
    """
    columns = {name: rows[name].combine_chunks() for name in ("subscriber", *DESCRIBED)}
    is_link = pc.starts_with(columns["subscriber"], LINK)
    is_plain = pc.and_(pc.invert(is_link), _are_plain(columns))
    whys = pc.if_else(is_plain, _describe_plain(columns), FORWARDED)
    is_other = pc.invert(pc.or_(is_link, is_plain))
    others = rows.filter(is_other).select(["subscriber", *DESCRIBED]).to_pylist()
    return pc.replace_with_mask(whys, is_other, pa.array(map(describe_match, others), pa.string()))


def _are_plain(columns: Mapping[str, pa.Array]) -> pa.Array:
    """Which rows have nothing but a box, or none, and terms, and are printed without exponents and escapes."""
    tests = [pc.is_null(columns[name]) for name in _RARE]
    for side in _SIDES:
        size = pc.abs(columns[side])
        is_usual = pc.and_(pc.greater_equal(size, _SMALLEST), pc.less(size, _LARGEST))
        tests.append(pc.or_(pc.or_(is_usual, pc.equal(size, 0.0)), pc.is_inf(columns["min_y"])))
    tests.append(pc.match_substring_regex(_joined(columns["terms"], ""), _PLAIN_TEXT))
    return reduce(pc.and_, tests)


def _describe_plain(columns: Mapping[str, pa.Array]) -> pa.Array:
    numbers = [pc.add(columns[side], 0.0).cast(pa.string()) for side in _SIDES]  # 0.0 instead of -0.0
    box = pc.binary_join_element_wise("in box(", pc.binary_join_element_wise(*numbers, ", "), ")", "")
    terms = pc.binary_join_element_wise('has "', _joined(columns["terms"], '" and "'), '"', "")
    has_box = pc.invert(pc.is_inf(columns["min_y"]))
    has_terms = pc.greater(pc.fill_null(pc.list_value_length(columns["terms"]), 0), 0)
    both = pc.binary_join_element_wise(box, terms, ", ")
    return pc.if_else(has_box, pc.if_else(has_terms, both, box), pc.if_else(has_terms, terms, ""))


def _joined(lists: pa.ListArray, separator: str) -> pa.Array:
    return pc.fill_null(pc.binary_join(lists, separator), "")


def describe_match(row: Mapping[str, Any]) -> str:
    """Why an event matches a row of SUBSCRIPTIONS, for people to read."""
    box = [row[side] for side in ("min_x", "min_y", "max_x", "max_y")]
    if row["moving_radius"] is not None:
        where = f"within {number_text(row['moving_radius'])} m of {row['subscriber']}"
    elif row["circle"] is not None:
        where = f"in {region_text(Circle(*row['circle']))}"
    elif row["place"] is not None:
        where = f"in {region_text(Within(row['place']))}"
    else:
        where = "" if isinf(box[1]) else f"in box({', '.join(map(number_text, box))})"
    terms = f"has {' and '.join(map(quoted, row['terms']))}" if row["terms"] else ""
    conditions = (describe_condition(row[name]) for name in ("source", "on") if row[name] is not None)
    return ", ".join(filter(None, (where, terms, *conditions)))


@lru_cache(maxsize=10_000)
def describe_condition(encoded: str) -> str:
    """The LACL text of an encoded condition."""
    return condition_text(decode_condition(encoded))
