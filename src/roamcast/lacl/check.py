"""Semantic checks of a query: an ordered tuple of passes, one for each kind of error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from roamcast.errors import InputError, NotFoundError
from roamcast.lacl.errors import LaclError, SpanError
from roamcast.lacl.printing import region_text
from roamcast.lacl.query import Query
from roamcast.lacl.syntax import (
    Between,
    BoxRegion,
    Circle,
    Compare,
    Condition,
    Has,
    In,
    Inside,
    Leaf,
    Literal,
    Nearest,
    Number,
    RangLoc,
    Region,
    Sigil,
    Text,
    Within,
    conjuncts,
    leaves,
)
from roamcast.lacl.vocabulary import display

if TYPE_CHECKING:
    from roamcast.coordinates import CoordinateLimits
    from roamcast.places import Places
    from roamcast.space import Space

__all__ = ["MAX_NEAREST", "check"]

MAX_NEAREST: Final = 1_000
"""Maximum number of sources that one subscription can be bound to."""

_SIGIL_HINTS: Final[dict[Sigil, str]] = {
    "&": "& is an attribute of the source; use it in Where",
    "@": "@ is a reading; use it in On",
    "#": "# is an attribute of the subscriber; use it in Life-control",
}
_CLAUSE_NAMES: Final[dict[Sigil, str]] = {"&": "Where", "@": "On", "#": "Life-control"}
_TYPE_NAMES: Final = {str: "string", float: "number", int: "number", bool: "boolean"}
_LOCATION_HINTS: Final = {
    "&location": "for example &location in rang:loc(30)",
    "#location": "for example #location in room A",
}


class _CheckContext(NamedTuple):
    places: Places | None
    space: Space | CoordinateLimits | None


def check(query: Query, *, places: Places | None = None, space: Space | CoordinateLimits | None = None) -> Query:
    """Check a query and return it. Raises LaclError, which points at the first error.

    Names of places are checked if `places` is given, coordinates if `space` is given.
    """
    context = _CheckContext(places, space)
    try:
        for run_pass in _PASSES:
            run_pass(query, context)
    except SpanError as error:
        raise LaclError.at(query.text, error) from None
    return query


def _sigils(query: Query, _: _CheckContext) -> None:
    """Each clause tests one kind of variable."""
    for sigil, condition in _clauses(query):
        for test in leaves(condition):
            if test.variable.sigil != sigil:
                message = f"{test.variable.sigil} is not allowed in {_CLAUSE_NAMES[sigil]}"
                raise SpanError(message, test.variable.span, hint=_SIGIL_HINTS[test.variable.sigil])


def _subjects(query: Query, _: _CheckContext) -> None:
    """`location` is tested with a region, `&terms` with `has`, everything else with a comparison."""
    for _sigil, test in _tests(query):
        variable = test.variable
        name = f"{variable.sigil}{variable.name or ''}"
        located = variable.name == "location" and variable.sigil in "&#"
        if isinstance(test, Has) != (name == "&terms"):
            has_terms = name == "&terms"
            message = "&terms can only be tested with 'has'" if has_terms else "'has' can only be used with &terms"
            raise SpanError(message, variable.span, hint='for example &terms has ("fire", "smoke")')
        if located and not isinstance(test, Inside):
            message = f"{name} can only be tested with 'in' and a region"
            raise SpanError(message, variable.span, hint=_LOCATION_HINTS[name])
        if isinstance(test, Inside) and not located:
            raise SpanError("only &location and #location can be tested with a region", variable.span)


def _value_types(query: Query, _: _CheckContext) -> None:
    """Only numbers have an order; the values of a list have one type; readings are numbers, terms are strings."""
    for sigil, test in _tests(query):
        for value in _values(test):
            if isinstance(value, Number) and not math.isfinite(value.value):
                raise SpanError("the number is not finite", value.span or test.span)
            if sigil == "@" and not isinstance(value, Number):
                raise SpanError(f"readings are numbers, but this is a {_type_name(value)}", value.span)
        _check_value_types(test)


def _check_value_types(test: Leaf) -> None:
    match test:
        case Compare(_, operator, value) if operator not in ("=", "!=") and not isinstance(value, Number):
            hint = "use = or !=; numbers are written without quotes"
            raise SpanError(f"a {_type_name(value)} cannot be compared with {operator}", value.span, hint=hint)
        case Between(_, low, high):
            for value in (low, high):
                if not isinstance(value, Number):
                    raise SpanError(f"between needs two numbers, but this is a {_type_name(value)}", value.span)
        case In(_, values):
            for value in values:
                if _type_name(value) != _type_name(values[0]):
                    message = f"a {_type_name(value)} in a list of {_type_name(values[0])}s"
                    raise SpanError(
                        message,
                        value.span,
                        hint="all values of a list must have the same type; a number in quotes is a string",
                    )
        case Has(_, terms):
            for value in terms:
                if not isinstance(value, Text) or not value.value:
                    raise SpanError(
                        "a term must be a non-empty string", value.span, hint='for example ("fire", "2024")'
                    )
        case _:
            pass


def _one_location(query: Query, _: _CheckContext) -> None:
    """At most one location constraint, joined to the other conditions with `and`."""
    top = [part for part in conjuncts(query.where) if isinstance(part, Inside)]
    at_top = set(map(id, top))
    for test in leaves(query.where):
        if isinstance(test, Inside) and id(test) not in at_top:
            hint = "join it to the other conditions with 'and', and put those in parentheses"
            raise SpanError("a location constraint cannot be inside 'or' or 'not'", test.span, hint=hint)
    if len(top) > 1:
        raise SpanError("more than one location constraint", top[1].span, hint="use one subscription for each")


def _selection(query: Query, _: _CheckContext) -> None:
    """The function and the location constraint can be combined."""
    function, region = query.select.function, query.location
    has_terms = [test for test in leaves(query.where) if isinstance(test, Has)]
    if function == "all":
        if isinstance(region, Nearest):
            raise SpanError(
                "all() cannot be combined with nearest", region.span, hint="remove all(), or use rang:loc(r)"
            )
        if region is None and not has_terms:
            hint = 'for example &location in rang:loc(100), or &terms has ("fire")'
            raise SpanError("all() needs a region or terms", query.select.span, hint=hint)
        return
    if has_terms:
        raise SpanError(
            "&terms can only be used with all()", has_terms[0].span, hint="events have terms, sources do not"
        )
    if function is None:
        if not isinstance(region, Nearest):
            select = "Select" if region is None else "Select anyof()" if isinstance(region, RangLoc) else "Select all()"
            hint = f"for example {select} Where &location in {region_text(region or Nearest())}"
            raise SpanError("Select without a function needs nearest", (region or query.select).span, hint=hint)
    elif isinstance(region, Nearest):
        hint = f"remove {function}(); nearest needs no function"
        raise SpanError(f"{function}() cannot be combined with nearest", region.span, hint=hint)
    elif not isinstance(region, RangLoc):
        hint = "for example &location in rang:loc(30); fixed regions need all()"
        raise SpanError(f"{function}() needs rang:loc(r)", (region or query.select).span, hint=hint)


def _sizes(query: Query, _: _CheckContext) -> None:
    """Radii are not negative, counts and periods are at least one."""
    for region in _regions(query):
        match region:
            case RangLoc(radius) | Circle(_, _, radius) if not 0 <= radius < math.inf:
                raise SpanError("the radius must be 0 or more", region.span, hint="radii are in metres")
            case Nearest(count) if not 1 <= count <= MAX_NEAREST:
                raise SpanError(f"nearest needs a number from 1 to {MAX_NEAREST:,}", region.span)
            case _:
                pass
    if query.every is not None and query.every.period < 1:
        raise SpanError("the period must be longer than 0", query.every.span, hint="for example Every 10 s")


def _subscriber_regions(query: Query, _: _CheckContext) -> None:
    """The subscriber's own location is tested with fixed regions only."""
    if query.life_control is not None:
        for test in leaves(query.life_control):
            if isinstance(test, Inside) and isinstance(test.region, RangLoc | Nearest):
                message = f"{region_text(test.region)} is relative to the subscriber itself"
                raise SpanError(message, test.region.span, hint="use a place, box(…) or circle(…)")


def _coordinates(query: Query, context: _CheckContext) -> None:
    """Coordinates are valid in the space, and the corners of boxes are in order."""
    for region in _regions(query):
        try:
            match region:
                case BoxRegion():
                    _check_box(region, context.space)
                case Circle(x, y) if context.space is not None:
                    context.space.check_point(x, y)
                case _:
                    pass
        except InputError as error:
            raise SpanError(f"{error.where} {error.message}", region.span, hint=error.hint) from None


def _check_box(region: BoxRegion, space: Space | CoordinateLimits | None) -> None:
    """A text cannot state that a box crosses the antimeridian: it does if it is less than 180 degrees wide then."""
    box = region.box
    if not all(map(math.isfinite, box)):
        raise SpanError("a coordinate of the box is not finite", region.span)
    if box.min_y > box.max_y:
        hint = "the order is box(min_x, min_y, max_x, max_y)"
        raise SpanError(f"min_y {box.min_y:.15g} is greater than max_y {box.max_y:.15g}", region.span, hint=hint)
    if space is not None:
        space.check_box(box)
        if 0 < box.min_x - box.max_x <= 180:
            hint = "swap them; a box across the antimeridian must be less than 180 degrees wide"
            raise SpanError(f"min_x {box.min_x:.15g} is greater than max_x {box.max_x:.15g}", region.span, hint=hint)


def _known_places(query: Query, context: _CheckContext) -> None:
    for region in _regions(query):
        if isinstance(region, Within) and not region.place:
            raise SpanError("the name of the place is empty", region.span)
        if isinstance(region, Within) and context.places is not None:
            try:
                context.places.get(region.place)
            except NotFoundError as error:
                raise SpanError(f"no place named {display(region.place)}", region.span, hint=error.hint) from None


_PASSES: Final[tuple[Callable[[Query, _CheckContext], None], ...]] = (
    _sigils,
    _subjects,
    _value_types,
    _one_location,
    _selection,
    _sizes,
    _subscriber_regions,
    _coordinates,
    _known_places,
)


def _clauses(query: Query) -> Iterator[tuple[Sigil, Condition]]:
    yield "&", query.where
    if query.on is not None:
        yield "@", query.on
    if query.life_control is not None:
        yield "#", query.life_control


def _tests(query: Query) -> Iterator[tuple[Sigil, Leaf]]:
    for sigil, condition in _clauses(query):
        for test in leaves(condition):
            yield sigil, test


def _regions(query: Query) -> Iterator[Region]:
    for _, test in _tests(query):
        if isinstance(test, Inside):
            yield test.region


def _values(test: Leaf) -> tuple[Literal, ...]:
    match test:
        case Compare(_, _, value):
            return (value,)
        case Between(_, low, high):
            return (low, high)
        case In(_, values) | Has(_, values):
            return values
        case _:
            return ()


def _type_name(value: Literal) -> str:
    return _TYPE_NAMES[type(value.value)]
