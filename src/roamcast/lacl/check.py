"""Whether a query makes sense: an ordered row of passes, each of which looks at one thing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

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
from roamcast.lacl.vocabulary import shown
from roamcast.places import Places
from roamcast.space import Space

__all__ = ["MAX_NEAREST", "check"]

MAX_NEAREST: Final = 1_000
"""The most sources that one subscription may be bound to."""

_BELONGS: Final[dict[Sigil, str]] = {
    "&": "& is an attribute of the source and belongs in Where",
    "@": "@ is a reading and belongs in On",
    "#": "# is an attribute of the subscriber and belongs in Life-control",
}
_KINDS: Final = {str: "text", float: "number", int: "number", bool: "truth value"}
_LOCATED: Final = {"&location": "as in &location in rang:loc(30)", "#location": "as in #location in room A"}


class _World(NamedTuple):
    places: Places | None
    space: Space | None


def check(query: Query, *, places: Places | None = None, space: Space | None = None) -> Query:
    """The same query, which then makes sense. Raises LaclError that points at the first part that does not.

    Places are looked up only where they are given, coordinates only where a space is.
    """
    world = _World(places, space)
    try:
        for look in _PASSES:
            look(query, world)
    except SpanError as fault:
        raise LaclError.at(query.text, fault) from None
    return query


def _sigils(query: Query, _: _World) -> None:
    """Each clause tests its own kind of variable."""
    for sigil, condition in _clauses(query):
        for test in leaves(condition):
            if test.variable.sigil != sigil:
                clause = _BELONGS[sigil].rsplit(" ", 1)[-1]
                raise SpanError(
                    f"{test.variable.sigil} in {clause}", test.variable.span, hint=_BELONGS[test.variable.sigil]
                )


def _subjects(query: Query, _: _World) -> None:
    """`location` is in a region, `terms` have terms, and everything else is compared."""
    for _sigil, test in _tests(query):
        variable = test.variable
        name = f"{variable.sigil}{variable.name or ''}"
        located = variable.name == "location" and variable.sigil in "&#"
        if isinstance(test, Has) != (name == "&terms"):
            hint = 'as in &terms has ("fire", "smoke")'
            raise SpanError("&terms and has go together, and with nothing else", variable.span, hint=hint)
        if isinstance(test, Inside) != located:
            hint = _LOCATED.get(name, "&location and #location are")
            raise SpanError(
                f"{name} is {'always' if located else 'not'} tested with in and a region", variable.span, hint=hint
            )


def _kinds(query: Query, _: _World) -> None:
    """Only numbers have an order; a list is of one kind; readings are numbers, terms are texts."""
    for sigil, test in _tests(query):
        for value in _values(test):
            if isinstance(value, Number) and not math.isfinite(value.value):
                raise SpanError("not a finite number", value.span or test.span)
            if sigil == "@" and not isinstance(value, Number):
                raise SpanError(f"readings are numbers, this is a {_kind(value)}", value.span)
        _check_kinds_of(test)


def _check_kinds_of(test: Leaf) -> None:
    match test:
        case Compare(_, operator, value) if operator not in ("=", "!=") and not isinstance(value, Number):
            hint = "use = or !=, or leave out the quotes of a number"
            raise SpanError(f"a {_kind(value)} cannot be compared with {operator}", value.span, hint=hint)
        case Between(_, low, high):
            for value in (low, high):
                if not isinstance(value, Number):
                    raise SpanError(f"between takes two numbers, this is a {_kind(value)}", value.span)
        case In(_, values):
            for value in values:
                if _kind(value) != _kind(values[0]):
                    message = f"a {_kind(value)} in a list that begins with a {_kind(values[0])}"
                    raise SpanError(message, value.span, hint="a list is of one kind; a number in quotes is a text")
        case Has(_, terms):
            for value in terms:
                if not isinstance(value, Text) or not value.value:
                    raise SpanError("a term is a text that is not empty", value.span, hint='as in ("fire", "2024")')
        case _:
            pass


def _one_location(query: Query, _: _World) -> None:
    """At most one location constraint, beside the other conditions and not below `or` or `not`."""
    top = [part for part in conjuncts(query.where) if isinstance(part, Inside)]
    at_top = set(map(id, top))
    for test in leaves(query.where):
        if isinstance(test, Inside) and id(test) not in at_top:
            hint = "join it to everything else with 'and'; put the rest in parentheses"
            raise SpanError("a location constraint cannot stand below 'or' or 'not'", test.span, hint=hint)
    if len(top) > 1:
        raise SpanError("a second location constraint", top[1].span, hint="one subscription each")


def _choice(query: Query, _: _World) -> None:
    """The function and the location constraint fit each other."""
    function, region = query.select.function, query.location
    has_terms = [test for test in leaves(query.where) if isinstance(test, Has)]
    if function == "all":
        if isinstance(region, Nearest):
            raise SpanError("nearest with all()", region.span, hint="leave out all(), or use rang:loc(r)")
        if region is None and not has_terms:
            hint = 'as in &location in rang:loc(100), or &terms has ("fire")'
            raise SpanError("all() needs a region or terms", query.select.span, hint=hint)
        return
    if has_terms:
        raise SpanError("&terms goes with all()", has_terms[0].span, hint="terms belong to events, not to sources")
    if function is None:
        if not isinstance(region, Nearest):
            hint = "as in Select anyof() for one source in reach, or Select all() for every event"
            raise SpanError("without a function only nearest chooses", (region or query.select).span, hint=hint)
    elif isinstance(region, Nearest):
        raise SpanError(
            f"{function}() with nearest", region.span, hint=f"leave out {function}(): nearest chooses by itself"
        )
    elif not isinstance(region, RangLoc):
        hint = "as in &location in rang:loc(30); fixed regions go with all()"
        raise SpanError(f"{function}() needs rang:loc(r)", (region or query.select).span, hint=hint)


def _sizes(query: Query, _: _World) -> None:
    """Radii are not negative, counts and periods are at least one."""
    for region in _regions(query):
        match region:
            case RangLoc(radius) | Circle(_, _, radius) if not 0 <= radius < math.inf:
                raise SpanError("the radius must be a number from 0 up", region.span, hint="in metres")
            case Nearest(count) if not 1 <= count <= MAX_NEAREST:
                raise SpanError(f"nearest takes a number from 1 to {MAX_NEAREST:,}", region.span)
            case _:
                pass
    if query.every is not None and query.every.period < 1:
        raise SpanError("the period must be longer than 0", query.every.span, hint="as in Every 10 s")


def _own_regions(query: Query, _: _World) -> None:
    """The subscriber's own location is tested against fixed regions."""
    if query.life_control is not None:
        for test in leaves(query.life_control):
            if isinstance(test, Inside) and isinstance(test.region, RangLoc | Nearest):
                message = f"{region_text(test.region)} is relative to the subscriber itself"
                raise SpanError(message, test.region.span, hint="use a place, box(…), circle(…) or within(…)")


def _coordinates(query: Query, world: _World) -> None:
    """Boxes and centres lie in space; a box is not reversed."""
    for region in _regions(query):
        try:
            match region:
                case BoxRegion(box):
                    _check_box(region)
                    if world.space is not None:
                        world.space.check_box(box)
                case Circle(x, y) if world.space is not None:
                    world.space.check_point(x, y)
                case _:
                    pass
        except InputError as error:
            raise SpanError(f"{error.where} {error.message}", region.span, hint=error.hint) from None


def _check_box(region: BoxRegion) -> None:
    """What holds in every space."""
    if not all(map(math.isfinite, region.box)):
        raise SpanError("a border is not a finite number", region.span)
    if region.box.min_y > region.box.max_y:
        hint = "box(min_x, min_y, max_x, max_y)"
        raise SpanError(f"min_y {region.box.min_y:.15g} is above max_y {region.box.max_y:.15g}", region.span, hint=hint)


def _known_places(query: Query, world: _World) -> None:
    for region in _regions(query):
        if isinstance(region, Within) and not region.place:
            raise SpanError("the name of a place must not be empty", region.span)
        if isinstance(region, Within) and world.places is not None:
            try:
                world.places.get(region.place)
            except NotFoundError as error:
                raise SpanError(f"no place named {shown(region.place)}", region.span, hint=error.hint) from None


_PASSES: Final[tuple[Callable[[Query, _World], None], ...]] = (
    _sigils,
    _subjects,
    _kinds,
    _one_location,
    _choice,
    _sizes,
    _own_regions,
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


def _kind(value: Literal) -> str:
    return _KINDS[type(value.value)]
