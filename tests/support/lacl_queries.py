"""Hypothesis strategies for valid queries."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from roamcast import model
from roamcast.lacl import Query
from roamcast.lacl.syntax import (
    And,
    Between,
    Boolean,
    BoxRegion,
    Circle,
    Compare,
    Condition,
    Every,
    Has,
    In,
    Inside,
    Literal,
    Nearest,
    Not,
    Number,
    Or,
    RangLoc,
    Region,
    Select,
    Sigil,
    Text,
    Variable,
    Within,
)

WORDS = (
    "a",
    "b",
    "light",
    "room A",
    "on",
    "And",
    "nearest",
    "box",
    "m",
    "km",
    "true",
    "s-17",
    "x--y",
    "größe",
    "温度",
    "3b",
)

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-3, 3).map(float)
characters = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
texts = st.sampled_from(WORDS) | st.text(characters, max_size=8)
names = texts.filter(bool)
radii = st.floats(0, allow_infinity=False)


def variables(sigil: Sigil) -> st.SearchStrategy[Variable]:
    """Variables with one sigil, except `location` and `terms`."""
    named = names.filter(lambda name: name not in ("location", "terms")).map(lambda name: Variable(sigil, name))
    return named | st.just(Variable("@", None)) if sigil == "@" else named


def literals(sigil: Sigil) -> st.SearchStrategy[Literal]:
    """Readings are numbers; attributes can have any type."""
    number = st.builds(Number, numbers)
    return number if sigil == "@" else number | st.builds(Text, texts) | st.builds(Boolean, st.booleans())


def comparisons(sigil: Sigil) -> st.SearchStrategy[Condition]:
    """Comparisons of all kinds."""
    some = variables(sigil)
    lists = [st.lists(st.builds(Number, numbers), min_size=1, max_size=4)]
    if sigil != "@":
        lists.append(st.lists(st.builds(Text, texts), min_size=1, max_size=4))
    return st.one_of(
        st.builds(Compare, some, st.sampled_from(["=", "!="]), literals(sigil)),
        st.builds(Compare, some, st.sampled_from(["<", "<=", ">", ">="]), st.builds(Number, numbers)),
        st.builds(In, some, st.one_of(lists).map(tuple)),
        st.builds(Between, some, st.builds(Number, numbers), st.builds(Number, numbers)),
    )


def conditions(leaves: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    """Leaves combined with and, or and not."""
    return st.recursive(leaves, _combine, max_leaves=6)


def _combine(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.builds(And, several) | st.builds(Or, several) | st.builds(Not, inner)


has_terms = st.lists(st.builds(Text, names), min_size=1, max_size=3).map(
    lambda terms: Has(Variable("&", "terms"), tuple(terms))
)

places: st.SearchStrategy[Region] = st.builds(Within, names)
boxes: st.SearchStrategy[Region] = st.builds(
    lambda west, south, east, north: BoxRegion(model.Box(west, min(south, north), east, max(south, north))),
    st.floats(-180, 180),
    st.floats(-90, 90),
    st.floats(-180, 180),
    st.floats(-90, 90),
).filter(lambda region: not 0 < region.box.min_x - region.box.max_x <= 180)
circles: st.SearchStrategy[Region] = st.builds(Circle, st.floats(-180, 180), st.floats(-90, 90), radii)
fixed: st.SearchStrategy[Region] = places | boxes | circles
around: st.SearchStrategy[Region] = st.builds(RangLoc, radii)
nearest: st.SearchStrategy[Region] = st.builds(Nearest, st.integers(1, 1_000))

in_place = fixed.map(lambda region: Inside(Variable("#", "location"), region))


# Built once: building strategies for each example would dominate the run time.
on_sources = st.lists(conditions(comparisons("&")), max_size=2)
on_events = st.lists(conditions(comparisons("&") | has_terms), max_size=2)
on_readings = st.none() | conditions(comparisons("@"))
on_subscribers = st.none() | conditions(comparisons("#") | in_place)
periods = st.none() | st.builds(Every, st.integers(1, 10**15))
functions = st.sampled_from([None, "anyof", "nearof", "remoteof", "all"])
regions = {None: nearest, "all": st.none() | around | fixed}


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Valid queries of both plans in geographic space."""
    function = draw(functions)
    region = draw(regions.get(function, around))
    parts: list[Condition] = draw(on_events if function == "all" else on_sources)
    parts.append(draw(has_terms) if region is None else Inside(Variable("&", "location"), region))
    where = _conjunction(draw(st.permutations(parts)))
    return Query(Select(function), where, draw(on_readings), draw(periods), draw(on_subscribers))


def _conjunction(parts: Sequence[Condition]) -> Condition:
    return And(tuple(parts)) if len(parts) > 1 else parts[0]
